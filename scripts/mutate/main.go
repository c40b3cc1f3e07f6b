// SPDX-License-Identifier: Apache-2.0

// Command mutate tests the tests of packages: it makes small changes in the code, one at a time, and says which of them
// the package's own tests do not notice.
//
// What comes in: package patterns. What goes out: a table by file, the list of survivors, JSON. Changes are given to
// the compiler as overlays; no file of the tree is written. The sample depends on the seed and on what the changed
// lines say, not on where they stand: the same mutants are tried before and after tests were added.
//
// It is a program of our own because of the public tools only Gremlins can be had for this Go; that one copies the
// whole tree for each worker, has neither a sample nor a list of equivalent mutants, and removes no statements.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// settings are the flags.
type settings struct {
	sample, workers  int
	seed             string
	equivalent, json string
	again            string
	files            []string
	short            bool
	patience         float64
	list             bool
	before           map[string]*Mutant // by id: what need not be tried again
}

// Result is what is written as JSON.
type Result struct {
	Seed     string    `json:"seed"`
	Sample   int       `json:"sample"`
	Packages []Package `json:"packages"`
}

// Package is one package's result. Score is noticed mutants in a hundred of those that count.
type Package struct {
	Path    string          `json:"path"`
	All     int             `json:"mutants_in_all"`
	Tried   int             `json:"mutants_tried"`
	Counts  map[Outcome]int `json:"counts"`
	Score   float64         `json:"score_percent"`
	Mutants []*Mutant       `json:"mutants"`
}

func main() {
	s := settings{}
	pflag.IntVar(&s.sample, "sample", 250, "mutants of each package, at most; 0 for all")
	pflag.IntVar(&s.workers, "workers", 2, "mutants that are tried side by side")
	pflag.StringVar(&s.seed, "seed", "1", "which sample")
	pflag.StringVar(&s.equivalent, "equivalent", "scripts/mutate-equivalent.txt", "the mutants that change nothing")
	pflag.StringVar(&s.json, "json", "", "write the result to this file, too")
	pflag.StringVar(&s.again, "again", "", "an earlier result (--json): mutants that were noticed then are not tried "+
		"again")
	pflag.StringSliceVar(&s.files, "files", nil, "only mutants of these files (tree.go,solve.go)")
	pflag.BoolVar(&s.short, "short", false, "run the tests with -short")
	pflag.Float64Var(&s.patience, "patience", 6,
		"a mutant has so many times as long as the unchanged tests took, and 10 s")
	pflag.BoolVar(&s.list, "list", false, "list the sample and try nothing")
	pflag.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: mutate [FLAGS] PACKAGE...\n%s", pflag.CommandLine.FlagUsages())
	}
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, pflag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate: error:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, s settings, patterns []string, out io.Writer) error {
	if len(patterns) == 0 {
		return fmt.Errorf("name packages, as in ./pass/place")
	}
	known, err := readEquivalents(s.equivalent)
	if err != nil {
		return err
	}
	packages, err := listPackages(ctx, patterns)
	if err != nil {
		return err
	}
	if s.before, err = readNoticed(s.again); err != nil {
		return err
	}
	result := Result{Seed: s.seed, Sample: s.sample}
	for _, p := range packages {
		done, err := mutate(ctx, s, p, known, out)
		if err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		if done != nil {
			result.Packages = append(result.Packages, *done)
		}
	}
	if s.json == "" || s.list {
		return nil
	}
	text, err := json.MarshalIndent(result, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.json, append(text, '\n'), 0o644)
}

// readNoticed gives the mutants of an earlier result that more tests would not make another outcome of.
func readNoticed(path string) (map[string]*Mutant, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var result Result
	if err := json.Unmarshal(text, &result); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	noticed := map[string]*Mutant{}
	for _, p := range result.Packages {
		for _, m := range p.Mutants {
			if m.Outcome.noticed() || m.Outcome == Broken {
				noticed[m.id()] = m
			}
		}
	}
	return noticed, nil
}

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	Module          struct{ Dir, Path string }
}

func listPackages(ctx context.Context, patterns []string) ([]goPackage, error) {
	arguments := append([]string{"list", "-json=ImportPath,Dir,GoFiles,Module", "--"}, patterns...)
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p goPackage
		if err := decoder.Decode(&p); err == io.EOF {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

func mutate(ctx context.Context, s settings, p goPackage, known *equivalents, out io.Writer) (*Package, error) {
	var all []*Mutant
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		relative, err := filepath.Rel(p.Module.Dir, path)
		if err != nil {
			return nil, err
		}
		found, err := find(path, relative)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	count := len(all)
	var equal []*Mutant
	all = slices.DeleteFunc(all, func(m *Mutant) bool {
		m.Reason = known.reason(m)
		if m.Reason != "" {
			m.Outcome = Equivalent
			equal = append(equal, m)
		}
		return m.Reason != ""
	})
	if stale := known.stale(append(slices.Clone(all), equal...)); len(stale) > 0 {
		return nil, fmt.Errorf("%s lists what is no mutant any more:\n%s", s.equivalent, strings.Join(stale, "\n"))
	}
	if len(s.files) > 0 {
		all = slices.DeleteFunc(all, func(m *Mutant) bool { return !slices.Contains(s.files, filepath.Base(m.File)) })
	}
	all = sample(append(all, equal...), s.seed, s.sample)
	path := strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
	if s.list {
		for _, m := range all {
			fmt.Fprintln(out, m)
		}
		return nil, nil
	}
	fmt.Fprintf(out, "%s: %d mutants, %d of them tried\n", path, count, len(all))
	if err := tryAll(ctx, s, p, all); err != nil {
		return nil, err
	}
	return report(out, path, count, all), nil
}

// sample takes n of the mutants, by a hash of what they are, and puts them in the order of the code.
func sample(all []*Mutant, seed string, n int) []*Mutant {
	id := func(m *Mutant) string {
		sum := sha256.Sum256([]byte(seed + "\x00" + m.id()))
		return hex.EncodeToString(sum[:])
	}
	slices.SortFunc(all, func(a, b *Mutant) int { return cmp.Compare(id(a), id(b)) })
	if n > 0 && len(all) > n {
		all = all[:n]
	}
	slices.SortFunc(all, func(a, b *Mutant) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.start, b.start), cmp.Compare(a.Change, b.Change))
	})
	return all
}

// tryAll gives each mutant its outcome.
func tryAll(ctx context.Context, s settings, p goPackage, mutants []*Mutant) error {
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	box := &sandbox{directory: p.Dir, scratch: scratch}
	if s.short {
		box.flags = append(box.flags, "-test.short")
	}
	took, profile, err := box.unchanged(ctx)
	if err != nil {
		return err
	}
	covered, err := readCoverage(profile)
	if err != nil {
		return err
	}
	box.timeout = max(10*time.Second, time.Duration(s.patience*float64(took)))

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan int)
	var group sync.WaitGroup
	for range max(1, s.workers) {
		group.Go(func() {
			for i := range work {
				if err := box.try(ctx, i, mutants[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i, m := range mutants {
		switch {
		case m.Outcome == Equivalent || ctx.Err() != nil:
		case s.before[m.id()] != nil:
			m.Outcome, m.Reason = s.before[m.id()].Outcome, s.before[m.id()].Reason
		case !covered.runs(m):
			m.Outcome = Uncovered
		default:
			work <- i
			if done := i + 1; done%25 == 0 {
				fmt.Fprintf(os.Stderr, "mutate: %d of %d\n", done, len(mutants))
			}
		}
	}
	close(work)
	group.Wait()
	return context.Cause(ctx)
}
