// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/cmd/internal/bench"
	"github.com/collage-tvm/collage/pass/settings"
)

// eightNetworks are the paper's and three others.
var eightNetworks = append(slices.Clone(paperNetworks), "mobilenet_v2", "unet", "efficientnet_b0")

var benchAnytimeCommand = Command{
	Name:      "bench anytime",
	Arguments: "[MODEL ...]",
	Short:     "how fast the fastest executable so far is, second by second of compiling",
	Long: `Compiles the paper's five networks and three others, and any MODEL given, each from an empty cost store by collage compile in a
process of its own, and tells how fast the fastest executable so far was after so many seconds of wall time, from the start of the
program: by the search's ratios to plain TVM, and by what plain TVM takes in turn with what was written in the end. With --before
it does the same with an earlier checkout of Collage.

It says after how many seconds the fastest executable so far was within 3 % of the best that any of the programs wrote, or that
stands in --reference (an earlier report of bench anytime or bench all), and how long the whole took beside what was asked for.

With --executables, what was taken is kept in that folder, network by network and program by program, and taken from there: an
interrupted benchmark goes on where it was.`,
	Examples: []string{
		"bench anytime --before ../earlier --executables built --json anytime.json",
		"bench anytime --networks dcgan,unet --backends tvm,dnnl --search-time 60s",
		"bench anytime model.onnx --networks none --at 5,10,20 --search-time 20s",
	},
	New: func(flags *pflag.FlagSet) Action {
		a := &benchAnytimeAction{}
		a.benchNetworks.declare(flags)
		flag := flags.Lookup("networks")
		flag.DefValue = "the paper's and three others"
		a.networks = eightNetworks
		flags.DurationVar(&a.searchTime, "search-time", settings.DefaultSearchTime,
			"each compilation is asked to take `TIME`")
		flags.Float64SliceVar(&a.at, "at", []float64{15, 30, 45, 60, 90, 120},
			"the table is for these `SECONDS`, with commas")
		flags.Lookup("at").DefValue = "15,30,45,60,90,120"
		flags.StringSliceVar(&a.backends, "backends", []string{"tvm", "dnnl", "native", "openvino"},
			"the backends, as `NAMES` with commas; the "+
				"earlier checkout gets those of them that it has")
		flags.BoolVar(&a.skip, "skip-unusable", false, "leave backends out that cannot be used here")
		flags.IntVar(&a.threads, "threads", 0, "run on `N` threads; 0 for all that the machine has")
		flags.StringVar(&a.earlier.before, "before", "",
			"also compile by an earlier checkout of Collage, set up in `FOLDER`")
		flags.StringArrayVar(&a.references, "reference", nil,
			"hold the results against those of an earlier report, too: `FILE` (JSON); "+
				"may be repeated")
		flags.StringVar(&a.executables, "executables", "", "keep in `FOLDER` what was taken, and take it from there")
		return a
	},
}

type benchAnytimeAction struct {
	benchNetworks
	searchTime time.Duration
	at         []float64
	earlier    benchOthers
	references []string

	// reference has what stands in references, by the network's name.
	reference map[string]float64
}

func (a *benchAnytimeAction) Check(s *Session, args []string) error {
	a.samples = 1 // collage compile's own
	if err := a.checkNumbers(); err != nil {
		return err
	}
	if a.searchTime <= 0 {
		return fmt.Errorf("--search-time %v: name some time, as in 90s", a.searchTime)
	}
	if len(a.at) == 0 || slices.Min(a.at) <= 0 || !slices.IsSorted(a.at) {
		return fmt.Errorf("--at %v: name seconds above 0, in order", a.at)
	}
	if err := a.check(args); err != nil {
		return err
	}
	a.reference = map[string]float64{}
	for _, path := range a.references {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("--reference: %w", err)
		}
		best, err := bench.ReadReference(text)
		if err != nil {
			return fmt.Errorf("--reference %s is no report of a benchmark: %w", path, err)
		}
		for name, ms := range best {
			if known := a.reference[name]; known == 0 || ms < known {
				a.reference[name] = ms
			}
		}
	}
	if err := a.earlier.check(); err != nil {
		return err
	}
	return a.checkUsed(s)
}

// checkUsed checks the backends, and leaves those out that cannot be used where that was asked for.
func (a *benchAnytimeAction) checkUsed(s *Session) error {
	if err := builtin.RegisterAll(); err != nil {
		return err
	}
	if a.skip {
		a.backends = slices.DeleteFunc(slices.Clone(a.backends), func(name string) bool { return !usable(name) })
	}
	return a.checkBackends(s)
}

func (a *benchAnytimeAction) Run(s *Session, _ []string) error {
	options, err := a.beginRuns(s)
	if err != nil {
		return err
	}
	note := "no report was written"
	if a.executables != "" {
		note += "; what was taken is kept in " + a.executables
	}
	s.setInterruptNote(note)
	run := &bench.AnytimeOptions{NetworkOptions: a.networkOptions(options), Asked: a.searchTime, At: a.at,
		Reference: a.reference,
		Columns:   []bench.AnytimeColumn{{Name: bench.Ours, Version: Version, Backends: a.backends}}}
	run.Keep = a.keep()
	programs := map[string]*program{bench.Ours: {command: []string{options.Python, "-m", "collage"}}}
	if a.earlier.before != "" {
		earlier := a.earlier.program()
		names, err := earlier.usable(s.Context, a.backends)
		if err != nil {
			return err
		}
		for _, other := range a.earlier.columns() {
			run.Columns = append(run.Columns,
				bench.AnytimeColumn{Name: other.Name, Version: other.Version, Backends: names, Python: other.Python,
					Env: other.Env})
			programs[other.Name] = earlier
		}
	}
	run.Compile = (&anytimeCompiler{programs: programs, threads: options.Threads, asked: a.searchTime,
		progress: options.Progress}).compile
	report, err := bench.RunAnytime(s.Context, a.runs, run)
	if err != nil {
		return err
	}
	return a.output.write(s, report)
}
