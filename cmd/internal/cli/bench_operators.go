// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/cmd/internal/bench"
)

const benchOperatorsLong = `Takes each different %s of a network by itself and measures what it takes on each backend, in the workers that measure
for collage compile: what the cost store knows is not measured again, and what is measured is kept there. Results are checked
against TVM's; a backend that refuses an operator, or fails at it, is shown with the reason.

Times in the table are relative to TVM's. Where a backend has several kernels for an operator (algorithms, layouts), its
fastest counts; the JSON has all of them, with their intervals. Without --backends, all that can be used here are measured.`

var (
	benchConvsCommand   = benchOperators("convs", "convolution", "workload:resnext50_32x4d", bench.Convolutions)
	benchMatmulsCommand = benchOperators("matmuls", "matrix product", "workload:bert_full", bench.Matmuls)
)

func benchOperators(name, what, model string, operators []string) Command {
	command := Command{
		Name:  "bench " + name,
		Short: "each different " + what + " of a network on each backend",
		Long:  fmt.Sprintf(benchOperatorsLong, what),
		Examples: []string{"bench " + name, "bench " + name + " --model model.onnx --backends tvm,dnnl,native",
			"bench " + name + " --json " + name + ".json --svg " + name + ".svg"},
		Host: hostOnly,
	}
	command.New = func(flags *pflag.FlagSet) Action {
		a := &benchOperatorsAction{command: &command, operators: operators}
		flags.StringVar(&a.model, "model", model, "the network, `MODEL` as of collage compile")
		a.declareModel(flags)
		flags.StringSliceVar(&a.backends, "backends", nil,
			"the backends, as `NAMES` with commas; without it, all that can be used")
		declareOption(flags, "target", &a.target)
		flags.IntVar(&a.threads, "threads", 0, "measure with `N` threads; 0 for all that the machine has")
		flags.IntVar(&a.optLevel, "opt-level", 3, "TVM's optimisation `LEVEL`, 0 to 4")
		declareOption(flags, "store", &a.store)
		flags.IntVar(&a.samples, "repeat", 20, "take `N` samples of each kernel that the store does not know")
		flags.BoolVar(&a.retry, "retry-failures", false, "measure kernels again that failed before")
		a.output.declare(flags)
		return a
	}
	return command
}

type benchOperatorsAction struct {
	modelFlags
	command   *Command
	model     string
	operators []string
	output    benchOutput
	absent    []bench.AbsentBackend
}

func (a *benchOperatorsAction) Check(s *Session, args []string) error {
	if err := expect(a.command, args); err != nil {
		return err
	}
	if err := a.checkNumbers(); err != nil {
		return err
	}
	if err := a.output.check(); err != nil {
		return err
	}
	if err := a.checkModel(a.model); err != nil {
		return err
	}
	err := checkDifferent(usedFile{"--model", a.model}, usedFile{"--params", a.params}, usedFile{"--db", a.store},
		usedFile{"--json", a.output.jsonFile}, usedFile{"--svg", a.output.svg})
	if err != nil {
		return err
	}
	if err := a.checkStore(); err != nil {
		return err
	}
	if len(a.backends) > 0 {
		return a.checkBackends(s)
	}
	names, absent, err := usableBackends()
	if err != nil {
		return err
	}
	a.backends, a.absent = names, nil
	for _, b := range absent {
		probe := b.Probe()
		a.absent = append(a.absent, bench.AbsentBackend{Name: b.Name(), Reason: probe.Reason, Remedy: probe.Remedy})
	}
	return nil
}

func (a *benchOperatorsAction) Run(s *Session, _ []string) error {
	a.verbose, a.quiet = a.output.verbose, a.output.quiet
	options, err := a.begin(s, a.model, "no report was written")
	if err != nil {
		return err
	}
	report, err := bench.MeasureOperators(s.Context, bench.OperatorOptions{Compile: options, Operators: a.operators})
	if err != nil {
		return err
	}
	report.Absent = append(report.Absent, a.absent...)
	return a.output.write(s, report)
}
