"""Tables and the page that answer which model is more robust, and by how much. No torch at import."""
