"""Certification within other libraries' training loops. Each is imported only when it is used.

- `lightning.CertifySample`: a callback that certifies a sample of the validation set.
"""

__all__: list[str] = []
