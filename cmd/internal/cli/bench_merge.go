// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/cmd/internal/bench"
)

var benchMergeCommand = Command{
	Name:      "bench merge",
	Arguments: "REPORT REPORT ...",
	Short:     "one table of what several runs of bench all wrote",
	Long: `Reads what bench all wrote with --json and makes one report of it, with the means over all networks: what was taken again of
some networks takes the place of what was there. A network that stands in several REPORTs is taken from the last of them. A
row that is older than the newest REPORT says when it was taken.

Nothing is run. REPORTs that were taken on another machine, on other threads, with other turns or with another version of
an engine are refused.`,
	Examples: []string{"bench merge networks.json again.json --json networks.json --svg networks.svg"},
	New: func(flags *pflag.FlagSet) Action {
		a := &benchMergeAction{}
		a.output.declare(flags)
		return a
	},
}

type benchMergeAction struct {
	output benchOutput
	report *bench.NetworkReport
}

func (a *benchMergeAction) Check(_ *Session, args []string) error {
	if len(args) < 2 {
		if err := expect(&benchMergeCommand, args, "REPORT", "a second REPORT"); err != nil {
			return err
		}
	}
	var reports []*bench.NetworkReport
	for _, path := range args {
		if err := checkReadable("REPORT", path); err != nil {
			return err
		}
		report, err := bench.ReadNetworks(path)
		if err != nil {
			return err
		}
		reports = append(reports, report)
	}
	var err error
	if a.report, err = bench.MergeNetworks(reports, args); err != nil {
		return err
	}
	return a.output.check()
}

func (a *benchMergeAction) Run(s *Session, _ []string) error { return a.output.write(s, a.report) }
