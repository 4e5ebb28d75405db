"""The paper's tables again: from our own runs or from the published logs, beside the printed numbers."""
