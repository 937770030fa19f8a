#!/usr/bin/env bash
# Checks every op on a GPU against the CPU and times what matters there, within 8 minutes, without cargo on the GPU's machine.
#
#   bench/gpu.sh build DIR        makes the folder DIR: the programs, this script and the PyTorch side. Needs cargo, no GPU.
#   DIR/gpu.sh run DIR [OUT]      runs it (OUT is gpu-results by default). Needs bash, coreutils and a GPU; Python with torch if
#                                 PyTorch is to be measured too; cuBLASLt and cuDNN (with torch, or from NVIDIA) if they are.
#
# Into OUT go report.md (the tables), report.json (the same), and what each step printed. OUT is made; results of an earlier run
# there are refused. Programs need a glibc at least as new as that of the machine that built them.
#
# It ends with 0 if all ops agree and every step came to its end, 1 if not (report.md says what), 2 without a GPU or if the command
# makes no sense. Steps for a library that is not there are left out, and the report says so.
#
# Variables: GPU_DEVICE (cuda:0), GPU_LIMIT (seconds in all, 470), GPU_CHECK_SECONDS (for the check of the ops, 150), GPU_SECONDS (for
# a workload, 0.4), GPU_CHECK_ONLY (ops, separated by commas; all), GPU_SIZE (full; small to try the script out, as on the virtual GPU:
# GPU_SIZE=small FIRECLAY_VIRTUAL_GPUS=1 DIR/gpu.sh run DIR), PYTHON (python3).
set -eu

usage() {
    sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
}

fail() {
    printf 'gpu.sh: %s\n' "$1" >&2
    exit 2
}

build() {
    local root
    root=$(cd "$(dirname "$0")/.." && pwd)
    [ -f "$root/bench/torch_gpu_workloads.py" ] || fail "build is run from the source folder: bench/gpu.sh build DIR"
    mkdir -p "$1"
    (cd "$root" && cargo build --release --locked -p fireclay-cli -p fireclay-testing --bins)
    local target
    target=${CARGO_TARGET_DIR:-$root/target}
    cp "$target"/release/fireclay "$target"/release/check-device "$target"/release/gpu-report "$1"/
    cp "$root"/bench/gpu.sh "$root"/bench/torch_*.py "$1"/
    printf 'made %s; on the machine with the GPU: %s/gpu.sh run %s\n' "$1" "$1" "$1" >&2
}

# record NAME RESULT SECONDS NOTE: a line of the report's table of steps.
record() {
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$(printf '%s' "$4" | tr '\t\n' '  ')" >>"$out/steps.tsv"
    printf '%s: %s, %s s%s\n' "$1" "$2" "$3" "${4:+ ($4)}" >&2
    case $2 in ok | 'left out') ;; *) bad=1 ;; esac
}

# step NAME SECONDS OUTPUT COMMAND...: runs a command for so long at most; what it prints is added to a file of OUT, and so is what it
# says on standard error, unless that is the check, which has a progress bar there.
step() {
    local name=$1 limit=$2 output=$3 left code=0 begun=$SECONDS note=''
    shift 3
    left=$((deadline - SECONDS))
    if ((left < limit)); then limit=$left; fi
    if ((limit < 5)); then
        record "$name" 'not reached' 0 "the $total s are over; GPU_LIMIT gives more"
        return
    fi
    printf '%s (at most %s s)\n' "$name" "$limit" >&2
    if [ "$name" = check ]; then
        timeout --kill-after=5 "$limit" "$@" >>"$out/$output" || code=$?
    else
        timeout --kill-after=5 "$limit" "$@" >>"$out/$output" 2>"$out/$name.log" || code=$?
        note=$(grep -v '^[[:space:]]*$' "$out/$name.log" | head -n 1 || true)
    fi
    case $name:$code in
        *:0) record "$name" ok $((SECONDS - begun)) "$note" ;;
        *:124 | *:137) record "$name" 'timed out' $((SECONDS - begun)) "after $limit s; what it had printed counts" ;;
        check*:1) record "$name" DIFFERS $((SECONDS - begun)) "see $output" ;;
        check*:3) record "$name" 'cut short' $((SECONDS - begun)) "not all was reached in time, see $output" ;;
        *)
            case $note in
                *" can't be used: "*) record "$name" 'left out' $((SECONDS - begun)) "$note" ;;
                *) record "$name" "failed ($code)" $((SECONDS - begun)) "${note:-see $name.log}" ;;
            esac
            ;;
    esac
}

run() {
    local dir=$1 small=() train=train/ images=train/resnet check=() python=${PYTHON:-python3}
    out=$2
    for program in fireclay check-device gpu-report; do
        [ -x "$dir/$program" ] || fail "$dir has no program $program; make the folder by: bench/gpu.sh build $dir"
    done
    command -v timeout >/dev/null || fail "there is no timeout (coreutils)"
    [ ! -e "$out/steps.tsv" ] || fail "$out has results of an earlier run; name another folder"
    mkdir -p "$out"
    case $GPU_SIZE in
        full) ;;
        small) small=(--small) train=train/tiny images= ;;
        *) fail "GPU_SIZE is $GPU_SIZE, expected full or small" ;;
    esac
    [ -z "$GPU_CHECK_ONLY" ] || check=(--only "$GPU_CHECK_ONLY")

    timeout 60 "$dir/fireclay" devices -v >"$out/devices.txt" || fail "fireclay devices ended with $?"
    if ! grep -q "^$GPU_DEVICE " "$out/devices.txt"; then
        grep '^cuda' "$out/devices.txt" >&2 || true
        fail "no GPU: there is no $GPU_DEVICE, see above; nothing was checked or timed"
    fi
    timeout 60 "$dir/fireclay" devices --json >"$out/devices.json" || fail "fireclay devices --json ended with $?"
    date -u +%Y-%m-%d >"$out/date.txt"
    : >"$out/steps.tsv"

    step check $((GPU_CHECK_SECONDS + 20)) check.txt \
        "$dir/check-device" --device "$GPU_DEVICE" --seconds "$GPU_CHECK_SECONDS" --json "$out/check.json" ${check[@]+"${check[@]}"}

    # The ops that a library computes, by that library; GPU_CHECK_ONLY is of the first check only.
    local with=(--device "$GPU_DEVICE" --seconds 25)
    step check-cublaslt 30 check-cublaslt.txt \
        "$dir/check-device" "${with[@]}" --json "$out/check-cublaslt.json" --blas cublaslt --only matmul,linear,addmm,baddbmm,addmv
    step check-cudnn 30 check-cudnn.txt "$dir/check-device" "${with[@]}" --json "$out/check-cudnn.json" --conv cudnn --only conv2d

    local bench=("$dir/fireclay" bench --device "$GPU_DEVICE" --seconds "$GPU_SECONDS" ${small[@]+"${small[@]}"})
    step own 120 own.jsonl "${bench[@]}" --blas own --only gpu/
    step own-train 50 own.jsonl "${bench[@]}" --blas own --only "$train"
    step cublaslt 40 cublaslt.jsonl "${bench[@]}" --blas cublaslt --only gpu/matmul
    step cublaslt-train 40 cublaslt.jsonl "${bench[@]}" --blas cublaslt --only gpu/train
    step cudnn 30 cudnn.jsonl "${bench[@]}" --conv cudnn --only gpu/conv
    if [ -n "$images" ]; then
        step cudnn-train 20 cudnn.jsonl "${bench[@]}" --conv cudnn --only "$images"
    fi

    local why left=$((deadline - SECONDS))
    if ((left > 60)); then left=60; fi
    if ((left < 5)); then
        record torch 'not reached' 0 "the $total s are over; GPU_LIMIT gives more"
    elif ! command -v "$python" >/dev/null; then
        record torch 'left out' 0 "there is no $python; PYTHON names another one"
    elif ! why=$(timeout "$left" "$python" -c 'import torch; torch.ones(1, device="'"$GPU_DEVICE"'"); print(torch.__version__)' 2>&1); then
        record torch 'left out' 0 "PyTorch can't be used: $(printf '%s' "$why" | tail -n 1)"
    else
        printf '%s\n' "$why" >"$out/torch.txt"
        local torch=(--device "$GPU_DEVICE" --seconds "$GPU_SECONDS")
        step torch 100 torch.jsonl "$python" "$dir/torch_gpu_workloads.py" "${torch[@]}" ${small[@]+"${small[@]}"}
        step torch-train 60 torch.jsonl "$python" "$dir/torch_workloads.py" "${torch[@]}" --only "$train"
    fi

    timeout 20 "$dir/gpu-report" "$out" || fail "the report was not written; what the steps printed is in $out"
    cat "$out/report.md"
    return "$bad"
}

GPU_DEVICE=${GPU_DEVICE:-cuda:0}
GPU_LIMIT=${GPU_LIMIT:-470}
GPU_CHECK_SECONDS=${GPU_CHECK_SECONDS:-150}
GPU_SECONDS=${GPU_SECONDS:-0.4}
GPU_CHECK_ONLY=${GPU_CHECK_ONLY:-}
GPU_SIZE=${GPU_SIZE:-full}
bad=0
total=$GPU_LIMIT
# The report is made in the last seconds.
deadline=$((SECONDS + total - 10))
case ${1:-} in
    build) if [ $# -eq 2 ]; then build "$2"; else usage; fi ;;
    run) if [ $# -ge 2 ] && [ $# -le 3 ]; then run "$2" "${3:-gpu-results}"; else usage; fi ;;
    *) usage ;;
esac
