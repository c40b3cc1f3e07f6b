// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
)

var backendsCommand = Command{
	Name:  "backends",
	Short: "list the backends and what each can take",
	Long: `Lists the backends: whether each can be used here, its library, and the patterns of operators that it can take
(with --verbose, each with its limits). What a backend is best at is not listed: that is measured.`,
	Examples: []string{"backends", "backends --verbose", "backends --json"},
	Host:     hostIfThere,
	New: func(flags *pflag.FlagSet) Action {
		a := &backendsAction{}
		flags.BoolVar(&a.json, "json", false, "print JSON")
		flags.BoolVarP(&a.verbose, "verbose", "v", false, "print the limits of each pattern")
		return a
	},
}

type backendsAction struct{ json, verbose bool }

// backendInfo is what --json prints of each backend.
type backendInfo struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Level is "operator" or "graph".
	Level         string        `json:"level"`
	Compiler      string        `json:"compiler,omitempty"`
	TakesAnything bool          `json:"takes_anything"`
	Probe         byoc.Probe    `json:"probe"`
	Patterns      []patternInfo `json:"patterns"`
}

type patternInfo struct {
	Composite string `json:"composite"`
	Limits    string `json:"limits,omitempty"`
}

func (a *backendsAction) Check(_ *Session, args []string) error {
	return expect(&backendsCommand, args)
}

func (a *backendsAction) Run(s *Session, _ []string) error {
	infos, err := listBackends()
	if err != nil {
		return err
	}
	if a.json {
		return s.printJSON(map[string]any{"backends": infos})
	}
	for i, b := range infos {
		if i > 0 {
			fmt.Fprintln(s.Stdout)
		}
		b.print(s, a.verbose)
	}
	if !a.verbose {
		fmt.Fprintln(s.Stdout, "\n--verbose prints the limits of each pattern.")
	}
	return nil
}

func listBackends() ([]backendInfo, error) {
	if err := builtin.RegisterAll(); err != nil {
		return nil, err
	}
	var infos []backendInfo
	for _, b := range byoc.All() {
		info := backendInfo{Name: b.Name(), Description: b.Description(), Level: levelText(b.Level()), Compiler: b.Compiler(),
			TakesAnything: b.TakesAnything(), Probe: b.Probe(), Patterns: []patternInfo{}}
		for _, p := range b.Patterns() {
			info.Patterns = append(info.Patterns, patternInfo{p.Composite, p.LimitsText})
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func levelText(level byoc.Level) string {
	if level == byoc.GraphLevel {
		return "graph"
	}
	return "operator"
}

func (b *backendInfo) print(s *Session, verbose bool) {
	w := s.Stdout
	fmt.Fprintf(w, "%s: %s\n", b.Name, b.Description)
	fmt.Fprintf(w, "  library   %s\n", libraryText(b.Probe))
	if !b.Probe.Usable {
		fmt.Fprintf(w, "  remedy    %s\n", b.Probe.Remedy)
	}
	fmt.Fprintf(w, "  level     %s\n", b.Level)
	if b.TakesAnything {
		fmt.Fprintf(w, "  takes     every operator\n")
		return
	}
	if !verbose {
		fmt.Fprintf(w, "  takes     %d patterns:\n", len(b.Patterns))
		for _, g := range groupPatterns(b) {
			printWrapped(w, "    ", g)
		}
		return
	}
	fmt.Fprintf(w, "  takes     %d patterns, most specific first:\n", len(b.Patterns))
	for _, p := range b.Patterns {
		fmt.Fprintf(w, "    %s\n", p.Composite)
		if p.Limits != "" {
			printWrapped(w, "      ", p.Limits)
		}
	}
}

// groupPatterns puts patterns that differ only in what follows their first operator into one line each
// ("conv1d, conv2d with bias, bias_relu, relu"), and the others into one line at the end.
func groupPatterns(b *backendInfo) []string {
	heads := newOrdered() // first operator -> what follows it
	var alone []string
	for _, p := range b.Patterns {
		name := strings.TrimPrefix(p.Composite, b.Compiler+".")
		head, tail, found := strings.Cut(name, "_")
		if name == p.Composite || !found || strings.Contains(name, "norm") { // an operator by itself
			alone = append(alone, name)
			continue
		}
		heads.add(head, tail)
	}
	groups := newOrdered() // what follows -> first operators
	for _, head := range heads.keys {
		groups.add(strings.Join(heads.values[head], ", "), head)
	}
	var lines []string
	for _, tails := range groups.keys {
		lines = append(lines, strings.Join(groups.values[tails], ", ")+" with "+tails)
	}
	if len(alone) > 0 {
		lines = append(lines, "alone: "+strings.Join(alone, ", "))
	}
	return lines
}

// ordered is a map to lists that keeps the order in which its keys came.
type ordered struct {
	keys   []string
	values map[string][]string
}

func newOrdered() *ordered { return &ordered{values: map[string][]string{}} }

func (o *ordered) add(key, value string) {
	if o.values[key] == nil {
		o.keys = append(o.keys, key)
	}
	o.values[key] = append(o.values[key], value)
}

// libraryText is "oneDNN 2.6.0 (avx512_core), /path" or why there is none.
func libraryText(p byoc.Probe) string {
	if !p.Usable {
		return fmt.Sprintf("not usable: %s", p.Reason)
	}
	text := strings.TrimSpace(p.Library + " " + p.Version)
	if len(p.Features) > 0 {
		text += " (" + strings.Join(p.Features, ", ") + ")"
	}
	if p.Path != "" {
		text += ", " + p.Path
	}
	return text
}
