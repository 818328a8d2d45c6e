"""Evidence for an auditor: what an environment claims and what was measured, in one signed folder.

The folder is read and verified without network and without the repository of the environment.
"""
