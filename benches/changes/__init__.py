"""Change feeds beside deltalake's change data feed, and beside plain scans."""
