// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/relay"
)

// rule is one of Relay's operators: when it means what ONNX's means, and how it is written. The same check decides what
// is placed and guards what is written.
type rule struct {
	// check says why the engine cannot run the call as Relay means it; nil where it can. The basics (call.basics) hold.
	check func(c *call) error
	// emit writes a call that has passed.
	emit func(w *writer, o *operation) error
	// merge looks for operators behind number i that one ONNX operator computes as well: it marks them (w.take), adds
	// what they read to o.in and gives the number of the last of them, i for none. nil: never.
	merge func(w *writer, o *operation, i int) int
	// limits is the check in one line.
	limits string
}

// ruleTable is filled when it is first asked for.
var ruleTable struct {
	once sync.Once
	all  map[string]rule
}

// rules are all rules by the operator's name.
func rules() map[string]rule {
	ruleTable.once.Do(func() {
		ruleTable.all = map[string]rule{}
		for _, group := range []map[string]rule{convolutions(), pools(), products(), normalisations(), elementwise(),
			reductions(),
			shapes(), selections(), scatters(), orders(), images(), samplings(), divisions()} {
			maps.Copy(ruleTable.all, group)
		}
		for name, check := range openRules {
			r, ok := ruleTable.all[name]
			if !ok {
				panic("onnxruntime: " + name + " may have open dimensions, and there is no rule for it")
			}
			if r.limits += ", open dimensions"; check != nil {
				r.limits = strings.TrimSuffix(r.limits, "open dimensions") + "some open dimensions"
			}
			ruleTable.all[name] = r
		}
	})
	return ruleTable.all
}

// operators are the names of all supported operators, sorted.
func operators() []string { return slices.Sorted(maps.Keys(rules())) }

// supported finds the rule that writes a call; the error says why there is none.
func supported(c *call) (rule, error) {
	r, ok := rules()[c.name]
	if !ok {
		return rule{}, fmt.Errorf("%s is not among the operators that are written for ONNX Runtime", c.name)
	}
	if err := c.basics(); err != nil {
		return rule{}, err
	}
	return r, r.check(c)
}

// refusal says why an operator of a graph cannot be run; nil where it can.
func refusal(g *relay.Graph, id relay.NodeID) error {
	c, err := callOf(g, id)
	if err != nil {
		return err
	}
	_, err = supported(c)
	return err
}

const onlyFloat = "float32"
