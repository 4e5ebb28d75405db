"""Networks prepared to run on many noise samples, and the sampler that counts their votes."""
