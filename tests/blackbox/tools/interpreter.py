"""A process tool that is as expensive as scripts are: an interpreter with the modules that most of them import."""

import argparse
import http.client
import json
import ssl
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=0.2)
seconds = parser.parse_args().seconds
asked = json.load(sys.stdin)
time.sleep(seconds)
print(json.dumps({"n": asked.get("n"), "modules": bool(http.client and ssl)}))
