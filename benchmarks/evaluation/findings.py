"""What was found by hand about errors and intervals: prose of docs/accuracy.md."""

RESNET_ON_HOPPER = """\
Why ResNet-50 on Hopper is off, as far as arithmetic over its kernels goes. milabench's runs on an
H100 are predicted a quarter too slow. At a batch of 776 they take 181 ms; the datasheet's bandwidth
moves what the kernels read and write in 112 ms, and their arithmetic takes 24 ms at peak. Predicted
are 81 ms of convolutions and 147 ms of kernels bound by memory (81 ms at the datasheet's rate).
Nothing that the record might leave out helps: inputs are made once and stay on the device, and
NCHW order or untuned kernels would make it slower still. All memory-bound kernels of Hopper share
one constant, 1.33, which norms of language models need and plain streams do not. But lambda's
ResNet-50 in NCHW order on H100, H200 and GH200 is predicted 4 to 25 % too *fast*, so that a
smaller constant would move the error from one source to the other. Tried and taken out:
convolutions whose bytes hide behind their arithmetic (a roofline to the fourth power for the sum of
both). With the four constants of convolutions refitted, each source left out, milabench goes from
17.0 to 10.3 % and dle from 7.6 to 7.0 %, but lambda from 11.5 to 12.7 %, Stable Diffusion from 14.7
to 15.5 % and timm from 14.6 to 15.1 %. On an L40S the error falls from half at a batch of 64 to a
tenth at 440: what one kernel writes probably stays in 96 MB of L2 until the next reads it, which is
not counted."""

WHERE_INTERVALS_FAIL = """\
## Where the interval is too narrow or too wide

How much each doubt weighs (`doubt.*` of planner/data/constants.toml) is fitted so that the interval
score is least: width, and ten times what a run lies outside. Every source counts the same, with its
runs predicted without it, and every device a seventh of that, without the device. To 2026-11-25 the
weights were those that make the errors likeliest; few large errors then widened what most runs
share. Sources were covered 80 % of the time as now, devices that were left out 86 %, and the later
runs under "The day before" 71 %. Leaving each source out of the fit of the weights too, the score
falls from .687 to .645, leaving each architecture out from .674 to .638, each device from .708 to
.639. Two doubts are new:

- Of XLA on other devices than TPUs (`xla_elsewhere`). One doubt was shared: 62 % of Pax's runs on
  GPUs were inside, and every run on a TPU. Without it the score of sources is .696.
- Of few sources (`few_sources`): after n sources of a stack on an architecture 1 / (1 + n) is left
  of the variance of what their runs share. Without it: .642 for architectures, .641 for devices.

What is left. On GB200 9 of 27 runs are three, each on 128, 256 and 512 devices: DeepSeek-V3 in bf16
takes three times what is predicted there, and Llama-3.1-405B of mid-2025 a seventh more, that of
2026 a tenth less. Left out, GB300 follows GB200, whose measured products are a tenth slower. On
Gaudi2 `optimum-habana` takes twice what is predicted. Tried and taken out, since they move no score
of what they were not fitted to: doubts of experts on young devices (Blackwell Ultra 56 to 62 % with
its architecture left out, all devices .639 to .642), of all young devices (Megatron on A100 in 2020
and on H100 in 2023 is predicted within 5 %), of fp8 by architecture, of FSDP, of long sequences.
"""
