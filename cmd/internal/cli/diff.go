// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
)

var diffCommand = Command{
	Name:      "diff",
	Arguments: "PLAN PLAN",
	Short:     "say what differs between two plans",
	Long: `Compares two plans: what they were made with, how many operators each backend gets, which operators are placed
otherwise and what they cost here and there, which costs changed, and how far each placement may be from the cheapest.
Places can be compared only where both plans are for the same module.`,
	Examples: []string{"diff before.json after.json", "diff before.json after.json --verbose",
		"diff before.json after.json --json"},
	New: func(flags *pflag.FlagSet) Action {
		a := &diffAction{}
		flags.BoolVar(&a.json, "json", false, "print JSON")
		flags.BoolVarP(&a.verbose, "verbose", "v", false, "leave nothing out")
		return a
	},
}

type diffAction struct{ json, verbose bool }

func (a *diffAction) Check(_ *Session, args []string) error {
	if err := expect(&diffCommand, args, "PLAN", "a second PLAN"); err != nil {
		return err
	}
	for _, path := range args {
		if err := checkReadable("plan", path); err != nil {
			return err
		}
	}
	return nil
}

func (a *diffAction) Run(s *Session, args []string) error {
	var plans [2]*plan.Plan
	for i, path := range args {
		var err error
		if plans[i], err = plan.ReadFile(path); err != nil {
			return err
		}
	}
	d := plan.Diff(plans[0], plans[1])
	if a.json {
		return s.printJSON(d)
	}
	return report.WriteDifference(s.Stdout, d, [2]string{args[0], args[1]}, report.Options{Verbose: a.verbose})
}
