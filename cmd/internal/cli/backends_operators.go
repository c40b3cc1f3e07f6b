// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// documentWidth is where the prose of documents in docs/ ends; tables are as wide as they must be.
const documentWidth = 120

// operatorTable is which backend takes which of Relay's operators, as the patterns of the backends say. Nothing in it
// depends on which libraries are here.
type operatorTable struct {
	// columns are the names of the backends that have one, in the order in which they were given.
	columns []string
	// uses are the rows by the operator's name, their cells by the backend's. What is not there is not taken.
	uses map[string]map[string]*operatorUse
	// without are the backends that have no column, each with the reason; engines are those of the columns that are of
	// the graph level; proposed are backends with the kernels of candidates that they propose beside their patterns.
	without, engines, proposed []string
}

// operatorUse is how a backend takes an operator.
type operatorUse struct {
	// alone says that the operator by itself is a candidate; otherwise it occurs in patterns of several operators only.
	alone bool
	// limits are those of the patterns that are the operator by itself.
	limits []string
}

// newOperatorTable makes the table of these backends.
func newOperatorTable(backends []byoc.Backend) *operatorTable {
	t := &operatorTable{uses: map[string]map[string]*operatorUse{}}
	for _, b := range backends {
		name, patterns := b.Name(), b.Patterns()
		if byoc.PrecisionOf(b) != byoc.F32 {
			continue // it takes what the one takes that computes the same in float32
		}
		if b.TakesAnything() {
			t.without = append(t.without, markedAsCode(name)+" (takes every operator)")
			continue
		}
		if len(patterns) == 0 {
			// Rules and predicates answer for an operator in a graph; there is no list of those that they accept.
			t.without = append(t.without, markedAsCode(name)+" (has no patterns; what it takes is asked of each graph)")
			continue
		}
		t.columns = append(t.columns, name)
		if b.Level() == byoc.GraphLevel {
			t.engines = append(t.engines, markedAsCode(name))
		}
		if p, ok := b.(byoc.KernelProposer); ok {
			for _, kernel := range p.ProposedKernels() {
				t.proposed = append(t.proposed, fmt.Sprintf("%s of %s", markedAsCode(kernel), markedAsCode(name)))
			}
		}
		for _, p := range patterns {
			t.add(b, &p)
		}
	}
	return t
}

// add enters the operators of one of a backend's patterns.
func (t *operatorTable) add(b byoc.Backend, p *byoc.Pattern) {
	backend, limits := b.Name(), byoc.LimitsText(b, p)
	for _, operator := range relay.Operators(p.Shape) {
		if t.uses[operator] == nil {
			t.uses[operator] = map[string]*operatorUse{}
		}
		if t.uses[operator][backend] == nil {
			t.uses[operator][backend] = &operatorUse{}
		}
	}
	for _, operator := range relay.Alone(p.Shape) {
		use := t.uses[operator][backend]
		use.alone = true
		if limits != "" && !slices.Contains(use.limits, limits) {
			use.limits = append(use.limits, limits)
		}
	}
}

// print writes the table as a Markdown document: what it is, the table, and the limits.
func (t *operatorTable) print(w io.Writer) {
	fmt.Fprint(w, "# Operators\n\n")
	printMarkdown(w, "", "Which of Relay's operators each backend takes. `collage backends --operators` prints this "+
		"document: it asks the backends for their patterns, which do not depend on what is installed.")
	fmt.Fprintln(w)
	for _, item := range []string{
		"`alone`: the operator by itself is a candidate, within the limits that the numbers name. Where there are " +
			"several, there are several patterns (of kernels for special cases, say), and one of them must fit.",
		"`with others`: only larger patterns have the operator.",
		"Nothing: no pattern of the backend has it.",
	} {
		printMarkdown(w, "- ", item)
	}
	fmt.Fprintln(w)
	printMarkdown(w, "", t.beyondTable())
	fmt.Fprintln(w)
	limits := t.printRows(w)
	if len(limits) > 0 {
		fmt.Fprint(w, "\n## Limits\n\n")
	}
	for i, text := range limits {
		printMarkdown(w, fmt.Sprintf("%d. ", i+1), text)
	}
}

// beyondTable says what the table does not.
func (t *operatorTable) beyondTable() string {
	var text []string
	if len(t.without) > 0 {
		text = append(text, "Without a column: "+strings.Join(t.without, ", ")+".")
	}
	text = append(text, "Patterns of several operators have limits of their own, which `collage backends --verbose` "+
		"lists.",
		// Or the row of nn.layer_norm would say that native, whose kernel norm does it, has nothing for it.
		"All patterns are looked for in what `Normalise` leaves of a network: `nn.batch_norm`, `nn.layer_norm` and their "+
			"like are taken apart there, and `nn.bias_add` is an `add`.")
	if len(t.engines) > 0 {
		text = append(text, "Engines ("+strings.Join(t.engines, ", ")+") are also given whole regions of the operators "+
			"that they take alone.")
	}
	text = append(text, "What several operators are by the time they get here has no row: `einsum` of an ONNX model is read "+
		"as transposes, reshapes and products. Operators whose results' shapes depend on data (`vision.non_max_suppression`, "+
		"`unique`, `argwhere`) are TVM's: regions have fixed shapes.")
	if len(t.proposed) > 0 {
		text = append(text, "What is found without a pattern may hold operators that the table does not say: the kernel "+
			strings.Join(t.proposed, ", ")+".")
	}
	return strings.Join(text, " ")
}

// printRows writes the table itself and gives the limits in the order of their numbers, each text once.
func (t *operatorTable) printRows(w io.Writer) (limits []string) {
	fmt.Fprint(w, "| operator |")
	for _, backend := range t.columns {
		fmt.Fprintf(w, " %s |", markedAsCode(backend))
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --- |", len(t.columns)))
	for _, operator := range slices.Sorted(maps.Keys(t.uses)) {
		fmt.Fprintf(w, "| %s |", markedAsCode(operator))
		for _, backend := range t.columns {
			var text string
			if use := t.uses[operator][backend]; use != nil {
				text, limits = use.cell(limits)
			}
			fmt.Fprintf(w, " %s |", text)
		}
		fmt.Fprintln(w)
	}
	return limits
}

// cell is what stands in the table, and the limits that have a number behind it, given those that had one before.
func (u *operatorUse) cell(limits []string) (text string, numbered []string) {
	if !u.alone {
		return "with others", limits
	}
	var numbers []int
	for _, limit := range u.limits {
		if !slices.Contains(limits, limit) {
			limits = append(limits, limit)
		}
		numbers = append(numbers, slices.Index(limits, limit)+1)
	}
	if len(numbers) == 0 {
		return "alone", limits
	}
	slices.Sort(numbers)
	return "alone " + strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), limits
}

// printMarkdown prints a paragraph as the documents are wrapped, or an item of a list that begins with a mark.
func printMarkdown(w io.Writer, mark, paragraph string) {
	printHanging(w, mark, strings.Repeat(" ", len(mark)), paragraph, documentWidth)
}

// markedAsCode is a name as Markdown has code, so that its underscores mean nothing.
func markedAsCode(name string) string { return "`" + name + "`" }
