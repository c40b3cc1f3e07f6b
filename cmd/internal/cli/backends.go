// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
)

var backendsCommand = Command{
	Name:  "backends",
	Short: "list the backends and what each can take",
	Long: `Lists the backends: whether each can be used here, its library, and the patterns of operators that it can take
(with --verbose, each with its limits). What a backend is best at is not listed: that is measured. --operators prints a
table of operators by backends instead.`,
	Examples: []string{"backends", "backends --verbose", "backends --json", "backends --operators > operators.md"},
	Host:     hostIfThere,
	New: func(flags *pflag.FlagSet) Action {
		a := &backendsAction{}
		flags.BoolVar(&a.json, "json", false, "print JSON")
		flags.BoolVar(&a.operators, "operators", false, "print a Markdown document: which operator each backend takes, "+
			"with limits")
		flags.BoolVarP(&a.verbose, "verbose", "v", false, "print the limits of each pattern")
		return a
	},
}

// optionalBackends are those whose libraries set-up does not install by itself; each is an extra of the Python package.
var optionalBackends = []string{"mkl", "onnxruntime", "openblas", "openvino"}

type backendsAction struct{ json, operators, verbose bool }

// backendInfo is what --json prints of each backend.
type backendInfo struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Level is "operator" or "graph".
	Level string `json:"level"`
	// Device is the kind of device that it runs on.
	Device string `json:"device"`
	// Kernels are the names that --pin and --forbid know, sorted.
	Kernels  []string `json:"kernels,omitempty"`
	Compiler string   `json:"compiler,omitempty"`
	// Precision is what it computes networks of float32 in, Wide the backend that does the same in float32 where that
	// is another one.
	Precision     byoc.Precision `json:"precision"`
	Wide          string         `json:"wide,omitempty"`
	TakesAnything bool           `json:"takes_anything"`
	Probe         byoc.Probe     `json:"probe"`
	Patterns      []patternInfo  `json:"patterns"`
}

type patternInfo struct {
	Composite string `json:"composite"`
	// Kernel and Reassociates are as in byoc.Pattern.
	Kernel       string `json:"kernel,omitempty"`
	Reassociates bool   `json:"reassociates,omitempty"`
	Limits       string `json:"limits,omitempty"`
}

func (a *backendsAction) Check(_ *Session, args []string) error {
	if a.operators && a.json {
		return errors.New("--operators does not go with --json: it prints a Markdown document (--json alone has the " +
			"patterns of each backend)")
	}
	if a.operators && a.verbose {
		return errors.New("--operators does not go with --verbose: its document has the limits already")
	}
	return expect(&backendsCommand, args)
}

func (a *backendsAction) Run(s *Session, _ []string) error {
	if a.operators {
		if err := builtin.RegisterAll(); err != nil {
			return err
		}
		newOperatorTable(byoc.All()).print(s.Stdout)
		return nil
	}
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
		info := backendInfo{Name: b.Name(), Description: b.Description(), Level: levelText(b.Level()),
			Device:  byoc.DeviceOf(b),
			Kernels: byoc.Kernels(b), Compiler: b.Compiler(), Precision: byoc.PrecisionOf(b),
			TakesAnything: b.TakesAnything(), Probe: b.Probe(), Patterns: []patternInfo{}}
		if wide := byoc.WideOf(b); wide != b.Name() {
			info.Wide = wide
		}
		for _, p := range b.Patterns() {
			info.Patterns = append(info.Patterns, patternInfo{p.Composite, p.Kernel, p.Reassociates,
				byoc.LimitsText(b, &p)})
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
	if b.Device != byoc.Host {
		fmt.Fprintf(w, "  device    %s; it is offered with --device %s\n", b.Device, b.Device)
	}
	if b.Wide != "" {
		fmt.Fprintf(w, "  precision %s; it is offered where --precision allows that\n", b.Precision)
		fmt.Fprintf(w, "  takes     %d of the patterns of %s\n", len(b.Patterns), b.Wide)
		return
	}
	if len(b.Kernels) > 0 {
		fmt.Fprintf(w, "  kernels   %d:\n", len(b.Kernels))
		printWrapped(w, "    ", strings.Join(b.markedKernels(), ", "))
	}
	if b.TakesAnything {
		fmt.Fprintf(w, "  takes     every operator\n")
		return
	}
	if len(b.Patterns) == 0 {
		fmt.Fprintf(w, "  takes     what it has rules for; that is asked of each network\n")
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
		fmt.Fprintf(w, "    %s\n", p.Composite+kernelText(&p))
		if p.Limits != "" {
			printWrapped(w, "      ", p.Limits)
		}
	}
}

// markedKernels are the names of the backend's kernels, those marked that --exact does without.
func (b *backendInfo) markedKernels() []string {
	names := slices.Clone(b.Kernels)
	for i, name := range names {
		if slices.ContainsFunc(b.Patterns, func(p patternInfo) bool { return p.Kernel == name && p.Reassociates }) {
			names[i] += " (not with --exact)"
		}
	}
	return names
}

// kernelText says of a pattern which kernel runs it, and whether --exact does without it.
func kernelText(p *patternInfo) string {
	var words []string
	if p.Kernel != "" {
		words = append(words, "kernel "+p.Kernel)
	}
	if p.Reassociates {
		words = append(words, "not with --exact")
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

// groupPatterns puts patterns that are one operator with something on top of it into one line for all operators with
// the same ("conv1d, conv2d alone or with bias, bias_relu, relu"), and the others into one line at the end.
func groupPatterns(b *backendInfo) []string {
	var names []string
	for _, p := range b.Patterns {
		// A composite begins with the compiler's name or the backend's, an operator perhaps with "nn.".
		name := strings.TrimPrefix(strings.TrimPrefix(p.Composite, b.Compiler+"."), b.Name+".")
		if name = strings.TrimPrefix(name, "nn."); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	heads, alone := splitPatterns(names)
	groups := newOrdered() // what follows -> operators
	for _, head := range heads.keys {
		with := " with "
		if slices.Contains(names, head) {
			with = " alone or with "
		}
		groups.add(with+strings.Join(heads.values[head], ", "), head)
	}
	var lines []string
	for _, tails := range groups.keys {
		lines = append(lines, strings.Join(groups.values[tails], ", ")+tails)
	}
	if len(alone) > 0 {
		lines = append(lines, "alone: "+strings.Join(alone, ", "))
	}
	return lines
}

// epilogueWords begin what patterns name after their operator.
var epilogueWords = []string{"bias", "sum", "scale", "relu", "leaky", "prelu", "gelu", "clip", "swish", "mish", "tanh",
	"sigmoid"}

// fewestEpilogues is how many an operator must have to be no operator of which such a word is a part (leaky_relu).
const fewestEpilogues = 3

// splitPatterns says what follows which operator, and which names stand alone.
func splitPatterns(names []string) (heads *ordered, alone []string) {
	all := newOrdered()
	headOf := map[string]string{}
	for _, name := range names {
		words := strings.Split(name, "_")
		i := slices.IndexFunc(words[1:], func(w string) bool { return slices.Contains(epilogueWords, w) })
		if i < 0 {
			continue
		}
		head := strings.Join(words[:i+1], "_")
		headOf[name] = head
		all.add(head, strings.Join(words[i+1:], "_"))
	}
	heads = newOrdered()
	for _, name := range names {
		head, found := headOf[name]
		switch {
		case found && len(all.values[head]) >= fewestEpilogues:
			heads.add(head, strings.TrimPrefix(name, head+"_"))
		case len(all.values[name]) < fewestEpilogues:
			alone = append(alone, name)
		}
	}
	return heads, alone
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
