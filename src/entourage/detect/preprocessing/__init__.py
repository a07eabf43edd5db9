"""Reading of pages and measuring of their geometry."""
