"""The node: turns aligned crops of many edges into generated crops."""
