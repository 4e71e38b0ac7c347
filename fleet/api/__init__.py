"""The inventory over REST: a resource for each kind, and the whole inventory as YAML."""
