// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// docs/operators.md is what the command prints, whether there are libraries or none.
func TestOperatorsDocument(t *testing.T) {
	code, document, stderr := runLine(t, "backends", "--operators")
	require.Zero(t, code, stderr)
	assert.Empty(t, stderr)
	compareGolden(t, filepath.Join("..", "..", "..", "docs", "operators.md"), document)
	for number, line := range strings.Split(document, "\n") {
		if !strings.HasPrefix(line, "|") {
			assert.LessOrEqual(t, len(line), documentWidth, "line %d", number+1)
		}
	}

	t.Setenv("COLLAGE_PLUGIN_DIR", t.TempDir())
	_, without, _ := runLine(t, "backends", "--operators")
	assert.Equal(t, document, without)
}

// takes is a backend that has these patterns and cannot be used here.
func takes(name string, level byoc.Level, patterns ...byoc.Pattern) byoc.Backend {
	return byoc.Definition{Name: name, Description: name, Level: level, Patterns: patterns,
		Emit: byoc.ExistingEmitter{}, Probe: func() byoc.Probe { return byoc.Probe{Reason: "not here"} }}.Backend()
}

// proposes has the kernel that it proposes beside the methods of what takes gave.
type proposes struct{ byoc.Backend }

func (proposes) ProposedKernels() []string { return []string{"attention"} }

// anything is a backend that takes every operator.
type anything struct{ byoc.Backend }

func (anything) TakesAnything() bool { return true }

func TestOperatorTable(t *testing.T) {
	x := relay.Wildcard()
	abs, dense := relay.Op("abs", x), relay.Op("nn.dense", x, x)
	var printed bytes.Buffer
	newOperatorTable([]byoc.Backend{
		anything{takes("all", byoc.OperatorLevel)},
		takes("asked", byoc.GraphLevel),
		takes("engine", byoc.GraphLevel, byoc.Pattern{Shape: relay.AnyOf([]string{"abs", "nn.dense"}, x, x),
			LimitsText: "small ones"}),
		proposes{takes("one_by_one", byoc.OperatorLevel,
			byoc.Pattern{Shape: relay.Op("nn.relu", dense), LimitsText: "of the larger pattern"},
			byoc.Pattern{Shape: dense, LimitsText: "even ones"}, byoc.Pattern{Shape: dense, LimitsText: "small ones"},
			byoc.Pattern{Shape: relay.Named("again", dense), LimitsText: "even ones"}, byoc.Pattern{Shape: abs})},
	}).print(&printed)
	text := printed.String()
	_, table, _ := strings.Cut(text, "\n| ")
	assert.Equal(t, `operator | `+"`engine` | `one_by_one`"+` |
| --- | --- | --- |
| `+"`abs`"+` | alone [1] | alone |
| `+"`nn.dense`"+` | alone [1] | alone [1, 2] |
| `+"`nn.relu`"+` |  | with others |

## Limits

1. small ones
2. even ones
`, table)
	prose := strings.Join(strings.Fields(text), " ")
	assert.Contains(t, prose, "Without a column: `all` (takes every operator), "+
		"`asked` (has no patterns; what it takes is asked of each graph).")
	assert.Contains(t, prose, "Engines (`engine`) are also given whole regions")
	assert.Contains(t, prose, "the kernel `attention` of `one_by_one`.")
}
