"""Tables on a server that speaks S3's protocol, started by the tests themselves."""
