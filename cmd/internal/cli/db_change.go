// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass/cost"
)

var dbMergeCommand = Command{
	Name:      "db merge",
	Arguments: "FILE... -o FILE",
	Short:     "put several stores into one",
	Long: `Puts the costs of several stores into one file. Where two have the same cost, the one that was measured last stays.
The output may be one of the inputs, and what an existing output holds is kept. Inputs are not changed.`,
	Examples: []string{"db merge laptop.jsonl server.jsonl -o all.jsonl"},
	New: func(flags *pflag.FlagSet) Action {
		a := &dbMergeAction{}
		flags.StringVarP(&a.output, "output", "o", "", "write the merged store to `FILE`")
		flags.BoolVar(&a.json, "json", false, "print JSON")
		return a
	},
}

type dbMergeAction struct {
	output string
	json   bool
}

func (a *dbMergeAction) Check(_ *Session, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("db merge needs the stores to merge: collage %s %s", dbMergeCommand.Name,
			dbMergeCommand.Arguments)
	}
	if a.output == "" {
		return errors.New("where to write the merged store is missing: -o FILE")
	}
	for _, path := range args {
		if err := checkReadable("store", path); err != nil {
			return err
		}
	}
	return atomicfile.CheckWritable(a.output)
}

func (a *dbMergeAction) Run(s *Session, args []string) error {
	change, err := cost.Merge(a.output, args)
	if err != nil {
		return err
	}
	if a.json {
		return s.printJSON(map[string]any{"store": a.output, "inputs": args, "change": change})
	}
	fmt.Fprintf(s.Stdout, "%s: %s (%d before), %s replaced by later ones; %s\n", a.output,
		plural(change.After, "cost", "costs"),
		change.Before, plural(change.Superseded, "record was", "records were"), sizeText(change.BytesAfter))
	if change.Broken > 0 {
		fmt.Fprintf(s.Stdout, "%s could not be read and was left out (collage db verify says which)\n",
			plural(change.Broken, "part", "parts"))
	}
	return nil
}

var dbPruneCommand = Command{
	Name:  "db prune",
	Short: "remove costs from the store",
	Long: `Removes the costs that the flags pick: those for which all of them hold. Without any, the failures that are no
longer believed. Records that later ones have replaced go in any case. What is removed is measured again when it is next
needed. Other processes may use the store meanwhile.`,
	Examples: []string{"db prune --dry-run", "db prune --older-than 90d", "db prune --backend dnnl --failures",
		"db prune --other-versions"},
	New: func(flags *pflag.FlagSet) Action {
		a := &dbPruneAction{}
		a.declare(flags)
		flags.BoolVarP(&a.dry, "dry-run", "n", false, "only say what would be removed")
		flags.BoolVar(&a.json, "json", false, "print JSON")
		return a
	},
}

type dbPruneAction struct {
	dbFilter
	dry, json bool
}

func (a *dbPruneAction) Check(_ *Session, args []string) error {
	if err := expect(&dbPruneCommand, args); err != nil {
		return err
	}
	_, err := a.filter()
	return err
}

func (a *dbPruneAction) Run(s *Session, _ []string) error {
	filter, err := a.filter()
	if err != nil {
		return err
	}
	if filter.IsZero() {
		filter.Expired = true
	}
	path, err := storePath(a.store)
	if err != nil {
		return err
	}
	file, err := cost.ReadFile(path)
	if err != nil {
		return err
	}
	change, err := cost.Prune(path, filter.Of(file.Entries()), a.dry)
	if err != nil {
		return err
	}
	if a.json {
		return s.printJSON(map[string]any{"store": path, "dry_run": a.dry, "removed": change.Before - change.After,
			"change": change})
	}
	verb := "removed"
	if a.dry {
		verb = "would remove"
	}
	_, err = fmt.Fprintf(s.Stdout, "%s: %s %d of %s, and %s that later ones have replaced; %s now, %s before\n", path,
		verb,
		change.Before-change.After, plural(change.Before, "cost", "costs"),
		plural(change.Superseded, "record", "records"),
		sizeText(change.BytesAfter), sizeText(change.BytesBefore))
	return err
}

var dbVerifyCommand = Command{
	Name:  "db verify",
	Short: "check every line of the store",
	Long: `Reads every line of the store and says what is no record: lines that were changed by hand, or torn when a process was
killed. A torn last line is harmless; whoever writes next removes it. The exit code is 2 where something cannot be read.

With --repair what cannot be read is moved to FILE.broken, and nothing else is lost.`,
	Examples: []string{"db verify", "db verify --repair --db store.jsonl"},
	New: func(flags *pflag.FlagSet) Action {
		a := &dbVerifyAction{}
		declareOption(flags, "store", &a.store)
		flags.BoolVar(&a.repair, "repair", false, "move what cannot be read out of the store")
		flags.BoolVar(&a.json, "json", false, "print JSON")
		return a
	},
}

type dbVerifyAction struct {
	store        string
	repair, json bool
}

// dbVerification is what --json prints.
type dbVerification struct {
	Store      string       `json:"store"`
	Valid      bool         `json:"valid"`
	Lines      int          `json:"lines"`
	Records    int          `json:"records"`
	Costs      int          `json:"costs"`
	Superseded int          `json:"superseded"`
	Newer      int          `json:"newer"`
	TornTail   bool         `json:"torn_tail"`
	Problems   []dbProblem  `json:"problems"`
	Repaired   *cost.Change `json:"repaired,omitempty"`
}

type dbProblem struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

func (a *dbVerifyAction) Check(_ *Session, args []string) error {
	return expect(&dbVerifyCommand, args)
}

func (a *dbVerifyAction) Run(s *Session, _ []string) error {
	path, err := storePath(a.store)
	if err != nil {
		return err
	}
	file, err := cost.ReadFile(path)
	if err != nil {
		return err
	}
	v := dbVerification{Store: path, Lines: file.Lines, Records: file.Records, Costs: len(file.Entries()),
		Superseded: file.Superseded,
		Newer:      file.Newer, TornTail: file.Torn, Problems: []dbProblem{}}
	for _, p := range file.Problems {
		v.Problems = append(v.Problems, dbProblem{p.Line, p.Err.Error()})
	}
	if a.repair && (len(file.Problems) > 0 || file.Torn) {
		if v.Repaired, err = cost.Repair(path); err != nil {
			return err
		}
	}
	v.Valid = len(file.Problems) == 0 || v.Repaired != nil
	if a.json {
		if err := s.printJSON(v); err != nil {
			return err
		}
	} else {
		v.print(s)
	}
	if !v.Valid {
		return fmt.Errorf("%s: %s cannot be read; collage db verify --repair moves what is broken out of the way", path,
			plural(len(v.Problems), "part", "parts"))
	}
	return nil
}

func (v *dbVerification) print(s *Session) {
	const shown = 20
	for i, p := range v.Problems {
		if i == shown {
			fmt.Fprintf(s.Stdout, "and %d more\n", len(v.Problems)-i)
			break
		}
		fmt.Fprintf(s.Stdout, "%s:%d: %s\n", v.Store, p.Line, p.Reason)
	}
	fmt.Fprintf(s.Stdout, "%s: %s with %s, %s", v.Store, plural(v.Lines, "line", "lines"),
		plural(v.Records, "record", "records"),
		plural(v.Costs, "cost", "costs"))
	if v.Newer > 0 {
		fmt.Fprintf(s.Stdout, ", %s of later versions of collage", plural(v.Newer, "record", "records"))
	}
	switch {
	case v.Repaired != nil && v.Repaired.BrokenTo != "":
		fmt.Fprintf(s.Stdout, "; repaired: what could not be read is in %s\n", v.Repaired.BrokenTo)
	case v.Repaired != nil:
		fmt.Fprintln(s.Stdout, "; repaired: the last line has its end")
	case v.TornTail && len(v.Problems) == 0:
		fmt.Fprintln(s.Stdout, "; all can be read; the last line has no end yet")
	case len(v.Problems) == 0:
		fmt.Fprintln(s.Stdout, "; all can be read")
	default:
		fmt.Fprintln(s.Stdout)
	}
}
