"""The engine with our program over a real AWS provider, against AWS on loopback: the judge `aws-engine`.

`journey` gives the verdict and `engine` runs the engine; `project` is the program that the engine runs, and `tokens`
what the bridge of judged/modules/aws-bridge has to know. `server`, `eks`, `billing` and `models` run in an environment
of their own (requirements/judges-aws.txt) and import nothing of the product.
"""
