"""Find a JDK that Spark can run on, or say in one line how to get it."""

import os
import re
import shutil
import subprocess
import sys


def main() -> int:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        found = re.search(r'version "(\d+)', said.stderr + said.stdout)
        if found and int(found.group(1)) >= 17:
            return 0
    print(
        "a JDK 17 or newer is needed: install one (Debian and Ubuntu: apt-get install openjdk-17-jdk-headless; "
        "macOS: brew install openjdk@17) and put java on the PATH or set JAVA_HOME",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
