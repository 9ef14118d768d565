"""S3 and compatible servers, through boto3: ``bucket`` reaches one, ``store`` keeps objects in it, ``deletion`` deletes them."""
