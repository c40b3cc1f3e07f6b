// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/pass/cost"
)

var dbCommand = Command{
	Name:      "db",
	Arguments: "COMMAND",
	Short:     "look after the store of measured costs",
	Long: `The cost store keeps what was measured, so that nothing is measured twice: a file of JSON lines, one for each
computation on each backend, that several processes may write at once. Without --db it is the user's own; collage doctor
says where that is. These commands need neither TVM nor Python.`,
	Examples: []string{"db ls --backend dnnl --failures", "db merge a.jsonl b.jsonl -o all.jsonl",
		"db prune --older-than 90d"},
	Parts: []*Command{&dbListCommand, &dbMergeCommand, &dbPruneCommand, &dbExportCommand, &dbVerifyCommand},
}

// dbFilter are the flags that pick costs.
type dbFilter struct {
	store                                        string
	backend, text, olderThan                     string
	failures, expired, otherMachine, otherVerson bool
}

func (f *dbFilter) declare(flags *pflag.FlagSet) {
	declareOption(flags, "store", &f.store)
	flags.StringVar(&f.backend, "backend", "", "only costs on the backend `NAME`")
	flags.StringVar(&f.text, "match", "", "only those whose computation or composite holds `TEXT` (nn.conv2d), or "+
		"whose key begins with it")
	flags.BoolVar(&f.failures, "failures", false, "only what failed")
	flags.BoolVar(&f.expired, "expired", false, "only failures that are no longer believed")
	flags.StringVar(&f.olderThan, "older-than", "", "only what was measured longer ago than `AGE` (12h, 30d, 8w)")
	flags.BoolVar(&f.otherMachine, "other-machine", false, "only what was measured on another processor than this one")
	flags.BoolVar(&f.otherVerson, "other-versions", false,
		"only what was measured with another version of TVM or of a library than the last one used")
}

func (f *dbFilter) filter() (cost.Filter, error) {
	filter := cost.Filter{Backend: f.backend, Text: f.text, Failures: f.failures, Expired: f.expired,
		OtherMachine:  f.otherMachine,
		OtherVersions: f.otherVerson}
	if f.olderThan != "" {
		age, err := parseAge(f.olderThan)
		if err != nil {
			return filter, err
		}
		filter.Before = time.Now().Add(-age)
	}
	return filter, nil
}

// parseAge reads "12h", "30d" or "8w".
func parseAge(text string) (time.Duration, error) {
	units := map[byte]time.Duration{'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}
	if len(text) > 1 {
		n, err := strconv.ParseFloat(text[:len(text)-1], 64)
		// Beyond a hundred years a time.Duration would soon overflow, and all costs be older than the future.
		const most = 100 * 365 * 24 * time.Hour
		if unit, ok := units[text[len(text)-1]]; ok && err == nil && n >= 0 && n*float64(unit) <= float64(most) {
			return time.Duration(n * float64(unit)), nil
		}
	}
	return 0, fmt.Errorf("--older-than %s: give it as 12h, 30d or 8w", quoteIfNeeded(text))
}

// storePath is the store that is meant; it must be there.
func storePath(given string) (string, error) {
	if given != "" {
		return given, checkReadable("--db", given)
	}
	path, err := cost.DefaultPath()
	if err != nil {
		return "", err
	}
	if err := checkReadable("--db", path); err != nil {
		return "", fmt.Errorf("there is no cost store yet at %s: collage compile and collage plan make it (or name "+
			"one with --db FILE)", path)
	}
	return path, nil
}

// pick reads the store and gives what the flags pick.
func (f *dbFilter) pick() (*cost.File, []cost.Entry, error) {
	filter, err := f.filter()
	if err != nil {
		return nil, nil, err
	}
	path, err := storePath(f.store)
	if err != nil {
		return nil, nil, err
	}
	file, err := cost.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	entries := file.Entries()
	picks := filter.Of(entries)
	picked := []cost.Entry{}
	for _, e := range entries {
		if picks(e) {
			picked = append(picked, e)
		}
	}
	return file, picked, nil
}

// dbEntry is a cost as --json and export give it.
type dbEntry struct {
	cost.Key
	Computation string        `json:"computation,omitempty"`
	Estimate    float64       `json:"estimate_ms,omitempty"`
	Low         float64       `json:"low_ms,omitempty"`
	High        float64       `json:"high_ms,omitempty"`
	Samples     []float64     `json:"samples_ms,omitempty"`
	MaxError    float64       `json:"max_error,omitempty"`
	Taken       time.Time     `json:"taken,omitzero"`
	Failure     *cost.Failure `json:"failure,omitempty"`
	// Expires is when the failure is no longer believed.
	Expires time.Time `json:"expires,omitzero"`
	Expired bool      `json:"expired,omitempty"`
}

func newDBEntry(e cost.Entry) dbEntry {
	d := dbEntry{Key: e.Key, Computation: e.Cost.Computation, Samples: e.Cost.Samples, MaxError: e.Cost.MaxError,
		Taken:   e.Cost.Taken,
		Failure: e.Cost.Failure, Expires: e.Expires, Expired: e.Expired()}
	if e.Cost.Known() {
		low, high := e.Cost.Interval()
		d.Estimate, d.Low, d.High = picosecond(e.Cost.Estimate()), picosecond(low), picosecond(high)
	}
	return d
}

func picosecond(ms float64) float64 { return math.Round(ms*1e9) / 1e9 }

func newDBEntries(entries []cost.Entry) []dbEntry {
	out := make([]dbEntry, len(entries))
	for i, e := range entries {
		out[i] = newDBEntry(e)
	}
	return out
}

// environmentText says what costs are valid for, in one line.
func environmentText(e cost.Environment) string {
	parts := []string{e.Device, e.Target, "TVM " + e.TVM}
	if e.Threads == 1 {
		parts = append(parts, "1 thread")
	} else {
		parts = append(parts, fmt.Sprintf("%d threads", e.Threads))
	}
	if e.Options != "" {
		parts = append(parts, e.Options)
	}
	return strings.Join(parts, "; ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
