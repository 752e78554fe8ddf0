"""An AWS without AWS: real SkyPilot, moto, and machines that are namespaces of this one.

cloud.py      start, use and stop a cloud; the only module that tests import
image.py      what every machine holds, made once and kept outside the repository
home.py       the person's home: credentials, SkyPilot's configuration and catalogue
network.py    the cloud's own network, which has no way out
server.py     the process inside: moto, the machines, metadata, and what cloud.py asks of it
fake_ec2.py   moto behind rules for capacity errors
fleet.py      machines, and the account of when each ran
machine.sh    how a machine boots
shutdown.sh   how a machine powers itself off, and no other one
metadata.py   what a machine may ask about itself
"""
