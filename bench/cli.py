import sys
from pathlib import Path
from bench import job_process
def main():
    a=sys.argv[1:]
    if a[0]=='job': return job_process.main(Path(a[1]),Path(a[2]),Path(a[3]))
