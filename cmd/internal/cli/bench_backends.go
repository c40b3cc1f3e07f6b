// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/cmd/internal/bench"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/pass/plan"
)

var benchBackendsCommand = Command{
	Name:      "bench backends",
	Arguments: "[MODEL ...]",
	Short:     "whole networks on each backend alone, beside its library run directly",
	Long: `Builds the paper's five networks, and any MODEL given, once for each backend, with all that it can take on that backend and
the rest on TVM, and runs them in turn. Where a backend's library is an engine of its own (tvm, openvino, onnxruntime), it
also runs the whole network directly, by its own Python interface, on the same threads: the ratio is what Collage and TVM's
executor put around it. Nothing is searched, and no cost store is used.

With --executables, NAME.tar or NAME.so in that folder (what bench all keeps there) runs as well: all backends together.`,
	Examples: []string{
		"bench backends --executables built --json backends.json --svg backends.svg",
		"bench backends --backends openvino,onnxruntime --rounds 31",
		"bench backends model.onnx --networks none",
	},
	Host: hostOnly,
	New: func(flags *pflag.FlagSet) Action {
		a := &benchBackendsAction{}
		a.benchNetworks.declare(flags)
		flags.StringVar(&a.executables, "executables", "", "also run what Collage chose, from `FOLDER`")
		flags.StringSliceVar(&a.backends, "backends", nil,
			"the backends, as `NAMES` with commas; without it, all that can be used")
		declareOption(flags, "target", &a.target)
		flags.IntVar(&a.threads, "threads", 0, "run on `N` threads; 0 for all that the machine has")
		flags.IntVar(&a.optLevel, "opt-level", 3, "TVM's optimisation `LEVEL`, 0 to 4")
		flags.StringVar(&a.tuningLog, "tuning-log", "",
			"compile TVM's part with what its tuners found out, as of collage compile")
		return a
	},
}

type benchBackendsAction struct {
	benchNetworks
	columns []bench.BackendColumn
}

func (a *benchBackendsAction) Check(s *Session, args []string) error {
	a.samples = 1 // nothing is sampled
	if err := a.checkNumbers(); err != nil {
		return err
	}
	if err := a.check(args); err != nil {
		return err
	}
	names, absent, err := usableBackends()
	if err != nil {
		return err
	}
	a.columns = nil
	if len(a.backends) > 0 {
		if err := a.checkBackends(s); err != nil {
			return err
		}
		absent = nil
	} else {
		a.backends = names
	}
	for _, name := range a.backends {
		b, err := byoc.Lookup(name)
		if err != nil {
			return err
		}
		probe := b.Probe()
		a.columns = append(a.columns, bench.BackendColumn{Name: name,
			Library: strings.TrimSpace(probe.Library + " " + probe.Version)})
	}
	for _, b := range absent {
		probe := b.Probe()
		a.columns = append(a.columns, bench.BackendColumn{Name: b.Name(), Absent: probe.Reason, Remedy: probe.Remedy})
	}
	return nil
}

func (a *benchBackendsAction) Run(s *Session, _ []string) error {
	options, err := a.beginRuns(s)
	if err != nil {
		return err
	}
	s.setInterruptNote("no report was written")
	run := a.networkOptions(options)
	run.Peers = a.backends
	report, err := bench.RunBackends(s.Context, a.runs, a.columns, func(n *bench.Network, folder string) error {
		return a.build(s, options, n, folder)
	}, run)
	if err != nil {
		return err
	}
	return a.output.write(s, report)
}

// build builds a network on each backend alone. One that TVM cannot build so has the reason.
func (a *benchBackendsAction) build(s *Session, options compile.Options, n *bench.Network, folder string) error {
	a.findExecutable(n)
	options = modelOf(options, n)
	module, _, err := compile.Load(s.Context, options)
	if err != nil {
		return err
	}
	defer module.Release()
	options.Module, n.Alone = module, map[string]bench.Alone{}
	for _, name := range a.backends {
		options.Output = filepath.Join(folder, name+".tar")
		p, err := compile.Alone(s.Context, options, name)
		switch {
		case s.Context.Err() != nil:
			return s.Context.Err()
		case err != nil:
			n.Alone[name] = bench.Alone{Failure: err.Error()}
		default:
			n.Alone[name] = alone(p, name, options.Output)
		}
	}
	return nil
}

func alone(p *plan.Plan, backend, executable string) bench.Alone {
	a := bench.Alone{Executable: executable}
	for _, b := range p.Backends {
		if b.Name == backend {
			a.Operators, a.Regions = b.Operators, b.Regions
		}
	}
	return a
}
