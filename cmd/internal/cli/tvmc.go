// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

var tvmcCommand = Command{
	Name:      "tvmc",
	Arguments: "ARGUMENTS OF TVMC...",
	Short:     "TVM's own driver, which knows the target collage",
	Long: `Is TVM's command line driver (python -m tvm.driver.tvmc) with one target more: collage, which goes before TVM's.
What tvmc knows it knows: run, compile with --dump-offloads and --tuning-records, tune.

Options of the target are those of collage.partition (docs/options.md), with + between the parts of a list and 1 or 0 for
truth: -backends=tvm+dnnl -search_time=60 -level=operator. What tvmc does not read in a target, such as a path, may stand
in --pass-config collage.store=FILE.

collage tvmc run finds the plug-ins of this installation. Plain tvmc run does so where LD_LIBRARY_PATH says where they are,
or where the model does: with -rpath=1, for this machine.

All that follows is tvmc's; collage tvmc compile --help tells of it.`,
	Examples: []string{
		`tvmc compile --target="collage -backends=tvm+dnnl, llvm" -o model.tar model.onnx`,
		`tvmc compile --target="collage -rpath=1, llvm" -o model.tar model.onnx`,
		`tvmc compile --target="collage, llvm" --dump-offloads - -o model.tar model.onnx`,
		`tvmc tune --target="collage -only=dnnl, llvm" -o records.json model.onnx`,
		"tvmc run --fill-mode random --print-time model.tar",
	},
	Raw: true,
	New: func(*pflag.FlagSet) Action { return tvmcAction{} },
}

type tvmcAction struct{}

func (tvmcAction) Check(*Session, []string) error { return nil }

// Run becomes tvmc.
func (tvmcAction) Run(s *Session, args []string) error {
	python, err := s.findHost()
	if err != nil {
		return fmt.Errorf("tvmc needs Python with TVM: %w (see collage doctor)", err)
	}
	if err := s.Context.Err(); err != nil {
		return err
	}
	argv := append([]string{python, "-m", "collage.tvmc"}, args...)
	return fmt.Errorf("cannot run %s: %w", python, unix.Exec(python, argv, os.Environ()))
}
