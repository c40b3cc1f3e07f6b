// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/dnnl"
	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/cmd/internal/bench"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// withoutTime is how long a search without a kernel takes: the store knows most of what it asks.
const withoutTime = 15 * time.Second

var benchWithoutCommand = Command{
	Name:      "bench without",
	Arguments: "[MODEL ...]",
	Short:     "what each kernel of our own is worth on whole networks",
	Long: `Takes what bench all kept of networks (--executables has NAME.tar and NAME.plan.json), searches again without each kernel of
native that stands in the plan, and runs what is found in turn with what was kept. A kernel that was kept is not for that one
that earns something: what comes next may be as fast. The searches are short, since the cost store that the networks were
compiled with knows most of what they ask; one that is as short with all kernels stands beside them, and a kernel earns
something where the network without it is slower than both, and oneDNN alone (NAME.alone-dnnl.tar, where bench all --alone dnnl
has built it) as well.

What is found is kept beside what was kept, and taken from there the next time, unless that is newer. A network that cannot be
compiled or run is told, and the others follow; the exit code is 2 then.`,
	Examples: []string{
		"bench without --executables built --json without.json",
		"bench without --executables built --networks unet,vit_b16 --search-time 10s",
	},
	Host: hostOnly,
	New: func(flags *pflag.FlagSet) Action {
		a := &benchWithoutAction{flags: flags}
		flags.StringVar(&a.of, "of", native.Name, "the `BACKEND` whose kernels are left out, one after another")
		a.benchNetworks.declare(flags)
		flags.StringVar(&a.executables, "executables", "", "take what was kept from `FOLDER`, and keep there what is found")
		a.declarePlacement(flags)
		flags.Lookup("backends").DefValue = "all that can be used"
		flags.IntVar(&a.compileRounds, "compile-rounds", 20, "compiling, run the finished networks `N` times each")
		flags.DurationVar(&a.searchTime, "search-time", withoutTime, "each search takes at most `TIME`")
		return a
	},
}

type benchWithoutAction struct {
	benchNetworks
	flags         *pflag.FlagSet
	of            string
	compileRounds int
	searchTime    time.Duration
	kernels       []string
}

func (a *benchWithoutAction) Check(s *Session, args []string) error {
	if err := a.checkNumbers(); err != nil {
		return err
	}
	switch {
	case a.compileRounds < 1:
		return fmt.Errorf("--compile-rounds %d: at least one round must be run", a.compileRounds)
	case a.searchTime <= 0:
		return fmt.Errorf("--search-time %v: name some time, as in 15s", a.searchTime)
	case a.executables == "":
		return errors.New("--executables: name the folder that has what bench all kept of the networks")
	}
	if err := a.check(args); err != nil {
		return err
	}
	if err := a.checkStore(); err != nil {
		return err
	}
	if err := a.checkAllBackends(s, a.flags); err != nil {
		return err
	}
	b, err := byoc.Lookup(a.of)
	if err != nil {
		return fmt.Errorf("--of: %w", err)
	}
	if a.kernels = byoc.Kernels(b); len(a.kernels) == 0 {
		return fmt.Errorf("--of %s: its kernels have no names", a.of)
	}
	if !slices.Contains(a.backends, a.of) {
		return fmt.Errorf("--of %s: it is not among the backends (%s)", a.of, strings.Join(a.backends, ", "))
	}
	return nil
}

func (a *benchWithoutAction) Run(s *Session, _ []string) error {
	options, err := a.beginRuns(s)
	if err != nil {
		return err
	}
	options.Rounds, options.Level, options.SearchTime = a.compileRounds, settings.GraphLevel, a.searchTime
	report, err := bench.RunWithout(s.Context, a.of, a.kernels, a.runs, a.searchTime,
		func(ctx context.Context, n *bench.Network) ([]bench.Left, error) { return a.leave(ctx, options, n) },
		a.networkOptions(options))
	if report == nil || err != nil && len(report.Networks) == 0 {
		return err
	}
	if err != nil {
		s.setInterruptNote(fmt.Sprintf("the report has %d of %d networks", len(report.Networks), len(a.runs)))
	}
	if err := errors.Join(a.output.write(s, report), err); err != nil {
		return err
	}
	var failed []string
	for _, n := range report.Networks {
		if n.Failure != "" {
			failed = append(failed, n.Name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d networks could not be compiled or run: %s", len(failed), len(a.runs),
			strings.Join(failed, ", "))
	}
	return nil
}

// leave searches for a network without each kernel that its plan has, with all of them first.
func (a *benchWithoutAction) leave(ctx context.Context, options compile.Options, n *bench.Network) ([]bench.Left,
	error) {
	folder := a.keep()
	if !a.findExecutable(n) {
		return nil, fmt.Errorf("there is no %s.tar in %s: collage bench all --executables writes it", n.Name,
			a.executables)
	}
	kept, err := plan.ReadFile(filepath.Join(folder, n.Name+".plan.json"))
	if err != nil {
		return nil, err
	}
	operators := bench.KernelOperators(kept, a.of)
	if len(operators) == 0 {
		return nil, nil
	}
	alone := filepath.Join(folder, n.Name+".alone-"+dnnl.Name+".tar")
	if _, err := os.Stat(alone); err == nil {
		n.Others = map[string]bench.Alone{aloneColumn(dnnl.Name): {Executable: alone}}
	}
	options = modelOf(options, n)
	var left []bench.Left
	for _, kernel := range append([]string{""}, a.kernels...) {
		if kernel != "" && operators[kernel] == 0 {
			continue
		}
		one := bench.Left{Kernel: kernel, Operators: operators[kernel]}
		at := filepath.Join(folder, n.Name+".searched-again")
		without := options
		if kernel != "" {
			at = filepath.Join(folder, n.Name+".without-"+kernel)
			without.Forbid = slices.Clone(options.Forbid)
			for _, operator := range bench.OperatorsOf(kept) {
				without.Forbid = append(without.Forbid, operator+"="+a.of+"."+kernel)
			}
		}
		without.Output = at + ".tar"
		if err := removeOlder(without.Output, n.Executable); err != nil {
			return nil, err
		}
		made := builtOnce(without.Output, func() error { return compileKept(ctx, without, at+".plan.json") })
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		one.Found.Executable, one.Failure = made.Executable, made.Failure
		if p, err := plan.ReadFile(at + ".plan.json"); err == nil && made.Failure == "" {
			one.Found.Describe(p)
		}
		left = append(left, one)
	}
	return left, nil
}

// removeOlder removes a file that is older than another one.
func removeOlder(path, than string) error {
	newer, err := os.Stat(than)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !info.ModTime().Before(newer.ModTime()) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}
