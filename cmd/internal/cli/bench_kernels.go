// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/cmd/internal/bench"
)

var benchKernelsCommand = Command{
	Name:  "bench kernels",
	Short: "each kernel of our own beside other backends and the machine's limit",
	Long: `Takes what the kernels of a backend can do in a network by itself, and measures the kernel, what the other backends take for
the same operators, and how much of what this machine can compute and read that is. By default: the kernels of native on a
grid of shapes (workload:kernels). The shapes on which a kernel loses are marked. Where --of computes in a narrower type, the
others that do so stand beside it, too.

What the cost store knows is not measured again, and what is measured is kept there. Results are checked against TVM's.`,
	Examples: []string{"bench kernels --json kernels.json --svg kernels.svg",
		"bench kernels --model model.onnx --backends dnnl,openvino",
		"bench kernels --of native_int8 --json kernels_int8.json"},
	Host: hostOnly,
	New: func(flags *pflag.FlagSet) Action {
		a := &benchKernelsAction{}
		flags.StringVar(&a.of, "of", native.Name, "the `BACKEND` whose kernels are measured")
		flags.StringVar(&a.model, "model", "workload:kernels", "the network, `MODEL` as of collage compile")
		a.declareModel(flags)
		flags.StringSliceVar(&a.backends, "backends", nil,
			"the backends to compare with, as `NAMES` with commas; without it, all that can be used")
		flags.StringVar(&a.target, "target", "", "TVM's `TARGET`; without it, this machine's processor")
		flags.IntVar(&a.threads, "threads", 0, "measure with `N` threads; 0 for all that the machine has")
		flags.IntVar(&a.optLevel, "opt-level", 3, "TVM's optimisation `LEVEL`, 0 to 4")
		declareOption(flags, "store", &a.store)
		flags.IntVar(&a.samples, "repeat", 20, "take `N` samples of each computation that the store does not know")
		flags.BoolVar(&a.retry, "retry-failures", false, "measure again what failed before")
		a.output.declare(flags)
		return a
	},
}

type benchKernelsAction struct {
	benchOperatorsAction
	of string
}

func (a *benchKernelsAction) Check(s *Session, args []string) error {
	a.command = &benchKernelsCommand
	if err := builtin.RegisterAll(); err != nil {
		return err
	}
	narrow := false
	if b, err := byoc.Lookup(a.of); err == nil && byoc.PrecisionOf(b) != byoc.F32 {
		narrow, a.precision.Allowed = true, string(byoc.PrecisionOf(b))
	}
	if len(a.backends) > 0 && !slices.Contains(a.backends, a.of) {
		a.backends = append(a.backends, a.of)
	}
	if err := a.benchOperatorsAction.Check(s, args); err != nil {
		return err
	}
	if narrow { // beside the others that compute so
		var err error
		if a.backends, err = a.precision.Offered(a.backends); err != nil {
			return asFlag(err)
		}
	}
	if slices.Contains(a.backends, a.of) {
		return nil
	}
	for _, b := range a.absent {
		if b.Name == a.of {
			return fmt.Errorf("--of %s: it cannot be used here: %s; %s", a.of, b.Reason, b.Remedy)
		}
	}
	_, err := byoc.Lookup(a.of)
	return fmt.Errorf("--of: %w", err)
}

func (a *benchKernelsAction) Run(s *Session, _ []string) error {
	a.verbose, a.quiet = a.output.verbose, a.output.quiet
	options, err := a.begin(s, a.model, "no report was written")
	if err != nil {
		return err
	}
	report, err := bench.MeasureKernels(s.Context, bench.KernelOptions{Compile: options, Backend: a.of})
	if err != nil {
		return err
	}
	report.Absent = append(report.Absent, a.absent...)
	return a.output.write(s, report)
}
