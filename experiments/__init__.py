# SPDX-License-Identifier: Apache-2.0
"""Experiments: from a YAML file to cells, runs, verdicts and a report.

An experiment's factors are expanded to *cells*. A cell is one combination of their levels and one
repeat: one network, one replay of a trace, one set of logs. A *run* is all cells of an experiment,
below runs/EXPERIMENT/STAMP. A *verdict* says whether you can trust a cell's figures.

A cell's life: `design` says what it is, `runs` starts it in its own process (`workers`: on another
machine), `cells` is that process, and `verdict` judges it. `bounds` compares a run's metrics with
accepted bands.

design/: what an experiment is. Pure: starts nothing.

| module | what it does |
|---|---|
| spec, spec_reports | read an experiment file; report its mistakes with their places |
| spec_rules | what the parts of a file must have in common |
| overrides, spec_options | what the command line may set instead of a file |
| file_lines | the line of a value that only the plan finds wrong |
| levels | names of lists and settings as levels |
| parameters, ldmd_settings | what may vary or be fixed; the settings of ldmd.conf |
| expansion | expand factors to cells (`CellSpec`, `build_cell`), with sizes and times by formula |
| join_leave_expansion, join_leave_script | the same where subscribers join and leave |
| rates | the rates of a cell's sender and path |
| cell_parts | the parts of a cell's specification, from its parameters |
| selection | choose cells (`--only`) and their order |
| networks | choose the network of a cell |
| trace_input, trace_model, paced_hour, feed_models | read and cut a trace, or generate one |
| feed_names | the feed types of LDM |
| trace_rate, rate_report | the least rate and buffer for a trace (`rate-for`) |
| carousel | one file instead of a trace; command lines of a carousel |
| layers | options of m2c-send and m2c-recv; competing traffic |
| peer_products | a trace's products as files |
| borrowing | several feeds under one HTB on one NIC: the tree, and each feed's share |
| clock_offset | programs whose clock is off: their environment, reading it back |
| conditions | queues, marks, TCP and a handicap of the first receiver |
| shaping, loss_model, burst_loss | commands for rates and losses, and reading them back |
| configs | configuration files of ldmd |

verdict/: whether a cell's emulation did what was asked. Pure but for `collect` and `from_files`.

| module | what it does |
|---|---|
| evidence, collect | all that a verdict rests on; collect it from a cell's files |
| from_files | judge a cell from its files alone |
| checks | what a check and a verdict are |
| network, loss, accounts | settings, losses, delays; where each datagram went |
| machine, cpu_load, host_lag | whether the machine kept up |
| queues, queue_watch | how full queues and socket buffers became |
| as_planned | whether everything was set as planned, all the time |
| arrivals | whether a product arrived before it can have |
| one_way, in_flight | what is asked of each way; what happened to the packets on it |
| replay, join_leave | whether the trace was replayed; whether subscriptions are complete |
| carousel | whether a carousel turned at its rate, and where its datagrams went |
| elsewhere, in_parts | hosts on other machines: clocks, tunnels; in other parts: frames |
| layers | whether layered multicast kept its rates and its programs got what arrived |

cells/: one cell, in its own process and network namespace.

| module | what it does |
|---|---|
| job, events | what the process is given, and what it reports |
| cell_main | the process: network up, steps of the cell, network down |
| cell_base | what both kinds of cell do: daemons, queues, samples, round trips |
| replay_cell, join_leave_cell | the two kinds: all subscribed throughout; joining and leaving |
| replay_parameters, minute_records | what a replayed cell states; minute records of its monitor |
| own_vlans | interfaces that subscribers' ldmd makes and removes |
| files_cell | what cells have in common whose products are files |
| carousel_cell | a cell whose file a carousel sends (protocol fcast) |
| layers_cell | a cell whose file layered multicast sends (protocol m2c) |
| peer_cell, peer_setup, peer_inboxes | a cell whose protocol sends files; set-up, deliveries |
| product_log | its logs |
| surveillance, journals, path_entries | watch settings and packets during the replay |
| cell_logs, samplers, fidelity, captures | read logs, sample programs, collect evidence, capture |
| elsewhere, host_agent, part_main | hosts elsewhere: their files, clocks and agents |
| disk_throttle | slow down a disk with control groups |
| sysstat | sysstat's binary records, and pidstat's records of each program |
| counters_page, counters_log | read the counters pages of programs; record them each second |
| background_traffic | competing TCP flows |
| rivals, short_flows | a competing session; short TCP connections |
| congestion_control | TCP's algorithm: setting it, and what connections use |
| pauses | a receiver that cannot keep up: its programs stop now and then |
| queue_place | where product queues are: in memory or on disk |
| run_directory | directories of runs and cells: complete or absent |

runs/: the cells of an experiment, one after the other or several at once.

| module | what it does |
|---|---|
| options, clocks | options of the commands; the clock that they ask for |
| preparation, plan_summary | check cells before anything starts; describe the plan |
| runner, sweep, running_cell | run an experiment; its cells; follow one cell |
| cell_process | a cell's process, native or in a guest |
| real_hosts, parts | cells with hosts on other machines (`remote`), in other guests |
| together | what needs all hosts in one place |
| until_decided | add repeats of the cells whose claims are open |
| estimates, progress | how long cells take; what is shown meanwhile |
| records, manifest, digests | what a run records about itself |
| resume, repeat | continue with an interrupted run; run one again from its manifest |
| compare, comparison_files | set runs side by side; write what that found |
| verify, judged_again, same_values | check that files, verdicts and figures are unchanged |
| asked_cells | check that no cell is missing |

workers/: cells on other machines.

| module | what it does |
|---|---|
| address, options | where workers are; options of `downpour workers` |
| parcel, environment | what is sent to a worker and back; a worker's packages |
| worker_cell | the program that a worker runs: one cell |
| remote, choice | what engines have in common; the clock that `--at` asks for |
| dask_clock, dask_task | workers of a Dask scheduler: the runner's side, the worker's |
| slurm_clock | jobs of a Slurm partition |
| local | the command `downpour workers` |

bounds/: regression tests of figures.

| module | what it does |
|---|---|
| bands, bands_report | read and judge bands; report the outcome to CI systems |
| regression | the command `downpour regression` |

catalogue/ has the bundled experiments, lag/ the program `hostlag`.
"""
