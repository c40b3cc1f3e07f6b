// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// Selector names nodes of a module: "%12" is node 12 of main (or of the only function), "block%12" that of the function
// block, "nn.conv2d" every call of that operator, and any other text the nodes that the front end says come from there:
// the whole span ("model.onnx:12:3") or its source ("conv1/BiasAdd", "model.onnx").
type Selector struct {
	// Function is the function of an index; "" for main or the only one.
	Function string
	// Index is a node's; -1 where Name selects.
	Index int
	// Name is an operator or a span.
	Name string
}

// ParseSelector reads a selector.
func ParseSelector(text string) (Selector, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return Selector{}, errors.New("a selector is empty: give an operator (nn.conv2d), a node (%12) or a span " +
			"(conv1/BiasAdd)")
	}
	if i := strings.LastIndexByte(text, '%'); i >= 0 {
		n, err := strconv.Atoi(text[i+1:])
		if err == nil && n >= 0 {
			return Selector{Function: text[:i], Index: n}, nil
		}
		if i == 0 {
			return Selector{}, fmt.Errorf("the selector %s is no node: give its number, as in %%12", text)
		}
	}
	return Selector{Index: -1, Name: text}, nil
}

func (s Selector) String() string {
	if s.Index >= 0 {
		return fmt.Sprintf("%s%%%d", s.Function, s.Index)
	}
	return s.Name
}

// Selects says whether a node of a function is meant; only says that the module has no other function.
func (s Selector) Selects(function string, only bool, n *Node) bool {
	if s.Index < 0 {
		source, _ := splitSpan(n.Span)
		return n.Operator == s.Name || n.Span != "" && (n.Span == s.Name || source == s.Name)
	}
	if n.Index != s.Index {
		return false
	}
	return s.Function == function || s.Function == "" && (only || function == "main")
}

// SpanText writes a span as "source:line:column", as far as there is something to say.
func SpanText(s relay.Span) string { return s.String() }

// splitSpan takes the line and the column off a span.
func splitSpan(text string) (source, position string) {
	source = text
	for range 2 {
		i := strings.LastIndexByte(source, ':')
		if i < 0 {
			return text, ""
		}
		if _, err := strconv.Atoi(source[i+1:]); err != nil {
			return text, ""
		}
		source = source[:i]
	}
	return source, text[len(source)+1:]
}

// Rule is a constraint: what is selected goes to a backend (a pin), or does not (a prohibition). One that names a
// kernel pins to that kernel of the backend, or keeps what is selected from it alone.
type Rule struct {
	Selector Selector
	Backend  string
	// Kernel is one of the backend's (byoc.Pattern.Kernel); "" for all that it has.
	Kernel string
	Forbid bool
}

// ParseRule reads "SELECTOR=BACKEND" and "SELECTOR=BACKEND.KERNEL".
func ParseRule(text string, forbid bool) (Rule, error) {
	i := strings.LastIndexByte(text, '=')
	if i < 0 || strings.TrimSpace(text[i+1:]) == "" {
		return Rule{}, fmt.Errorf("%q is not SELECTOR=BACKEND, as in nn.conv2d=dnnl or %%12=tvm", text)
	}
	backend, kernel, dotted := strings.Cut(strings.TrimSpace(text[i+1:]), ".")
	if dotted && (backend == "" || kernel == "") {
		return Rule{}, fmt.Errorf("%q is not SELECTOR=BACKEND.KERNEL, as in nn.conv2d=native.winograd", text)
	}
	selector, err := ParseSelector(text[:i])
	return Rule{Selector: selector, Backend: backend, Kernel: kernel, Forbid: forbid}, err
}

// String is the rule as plans and messages call it: "pin nn.conv2d=dnnl".
func (r Rule) String() string {
	verb := "pin"
	if r.Forbid {
		verb = "forbid"
	}
	return fmt.Sprintf("%s %s=%s", verb, r.Selector, r.Goal())
}

// Goal is what the rule pins to or forbids: "dnnl", "native.winograd".
func (r Rule) Goal() string {
	if r.Kernel != "" {
		return r.Backend + "." + r.Kernel
	}
	return r.Backend
}

// Breaks says that a candidate which holds a selected node and runs on that backend by that kernel breaks the rule.
func (r Rule) Breaks(backend, kernel string) bool {
	return (backend == r.Backend && (r.Kernel == "" || kernel == r.Kernel)) == r.Forbid
}
