"""What Kafka retains, which offsets were searched for references, and which objects a store has."""
