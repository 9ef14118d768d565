"""What everything of AWS shares: ``identity`` makes credentials from a connection, ``errors`` says what boto3's errors mean."""
