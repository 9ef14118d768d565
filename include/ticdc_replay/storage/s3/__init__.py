"""S3 and compatible servers, through boto3."""
