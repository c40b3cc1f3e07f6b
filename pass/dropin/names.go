// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/bridge"
)

// names gives functions their global symbols and costs, structurally equal functions the same ones (TVM's prototype:
// CandidateFunctionCache and NameSupply).
type names struct {
	byHash map[int64][]*entry
	next   map[string]int
}

// entry is what is known about a function.
type entry struct {
	function *bridge.Object
	symbol   string
	// seconds by target, since TVM's own functions carry none.
	seconds map[string]float64
}

func newNames() *names { return &names{byHash: map[int64][]*entry{}, next: map[string]int{}} }

// entry gives a function's entry. A function that is met for the first time is named after its compiler and label.
func (n *names) entry(r *workload, label string) (*entry, error) {
	v, err := bridge.Global("node.StructuralHash", r.function, false)
	if err != nil {
		return nil, err
	}
	hash, err := v.Int()
	if err != nil {
		return nil, err
	}
	for _, e := range n.byHash[hash] {
		v, err := bridge.Global("node.StructuralEqual", e.function, r.function, false, false)
		if err != nil {
			return nil, err
		}
		if equal, err := v.Bool(); err != nil {
			return nil, err
		} else if equal {
			return e, nil
		}
	}
	e := &entry{function: r.function, seconds: map[string]float64{}}
	if r.compiler != "" {
		e.symbol = n.fresh(r.compiler, label)
	}
	n.byHash[hash] = append(n.byHash[hash], e)
	return e, nil
}

// fresh gives a name that it has not given before: collage_<compiler>_<label>, and a number from the second time on.
func (n *names) fresh(compiler, label string) string {
	name := "collage"
	for _, part := range []string{compiler, label} {
		if part != "" {
			name += "_" + strings.Map(func(c rune) rune {
				if c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
					return c
				}
				return '_'
			}, part)
		}
	}
	k, taken := n.next[name]
	n.next[name] = k + 1
	if taken {
		return fmt.Sprintf("%s_%d", name, k)
	}
	return name
}
