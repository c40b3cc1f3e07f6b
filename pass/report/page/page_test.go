// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/growth"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// example is pass/plan's, with a search and finalists beside it.
func example(t *testing.T) *plan.Plan {
	t.Helper()
	p, err := plan.ReadFile("../../plan/testdata/plan.json")
	require.NoError(t, err)
	p.GraphLevel = &plan.GraphLevel{Seconds: 12, Why: "nothing improved",
		Networks: []plan.Network{
			{Name: "tvm", Ratio: 1, Milliseconds: 8, Rounds: 9},
			{Name: "dnnl", Ratio: 0.75, Milliseconds: 6, Rounds: 9, Regions: 2},
			{Name: "feedback 1", Failure: "no libdnnl.so.2\nand more"},
			{Name: "feedback 2", Ratio: 0.8, Milliseconds: 6.4, Rounds: 3, Regions: 3},
			{Name: "narrow", Ratio: 0.25, Milliseconds: 2, Rounds: 3, Regions: 3, Exceeds: "0.3 of 0.02"},
			{Name: "feedback 3", Ratio: 0.5, Milliseconds: 4, Rounds: 9, Regions: 1},
		}}
	p.Regions[0].Candidates[0].Context, p.Regions[0].Candidates[0].Profiles = 0.625, 3
	p.Timeline = &plan.Timeline{Asked: 20, Taken: 14}
	for i, n := range p.GraphLevel.Networks {
		p.Timeline.Networks = append(p.Timeline.Networks, plan.Moment{Placement: n.Placement, Seconds: 2 * float64(i),
			Stored: i == 0})
	}
	p.Timeline.Networks[3].Seconds = 3 // they are not in the order of time
	p.Finalists = []plan.Finalist{
		{Name: "tvm", Samples: []float64{8, 8.5, 8.25, 9, 8}},
		{Name: "dnnl", Samples: []float64{6, 6.5, 6.25, 7, 6}, MaxError: 1.25e-6, Regions: 2},
		{Name: "mkl", Failure: &cost.Failure{Phase: "build", Kind: cost.KindError, Detail: "no libmkl_rt.so"}},
		{Name: plan.PlacementName, Origin: "feedback 3", Samples: []float64{4, 4.25, 4.5, 6.5, 4}, MaxError: 1.5e-6,
			Chosen: true, Regions: 1},
	}
	return p
}

func TestData(t *testing.T) {
	data, err := newData(example(t))
	require.NoError(t, err)
	text, err := json.MarshalIndent(data, "", " ")
	require.NoError(t, err)
	golden(t, "data.json", append(text, '\n'))
}

// What the page says beside the drawing, as text.
func TestTables(t *testing.T) {
	v, err := newView(Content{Plan: example(t), Command: "collage compile 'my model.onnx'",
		CommandSays: "This makes it again:", Why: "It is the fastest.",
		Notes: []string{"There was no time to build mkl alone."}})
	require.NoError(t, err)
	v.Data, v.Version = "{}", "1.2.3"
	var b bytes.Buffer
	require.NoError(t, page.Execute(&b, v))
	golden(t, "page.txt", []byte(textOf(b.String())))
}

// textOf is what a page says: a line for each row of a table.
func textOf(page string) string {
	_, page, _ = strings.Cut(page, "<body>")
	page, _, _ = strings.Cut(page, "<script")
	page = strings.Join(strings.Fields(page), " ")
	for _, r := range [][2]string{{`</t[dh]> ?`, " | "}, {`</(tr|h\d|p|li|dd|title|summary|pre|figcaption)>|<br>`, "\n"},
		{`</dt>`, ": "}, {`<[^>]*>`, ""}, {` +`, " "}, {` ?\n ?`, "\n"}, {`\n+`, "\n"}, {` \|\n`, "\n"}} {
		page = regexp.MustCompile(r[0]).ReplaceAllString(page, r[1])
	}
	return strings.TrimSpace(html.UnescapeString(page)) + "\n"
}

func TestHostileNames(t *testing.T) {
	const hostile = `</script><script>alert(1)</script><img src=x onerror=alert(2)>"'<!--`
	p := example(t)
	p.Module.Name, p.Notes = hostile, []string{hostile}
	for i := range p.Regions {
		for k := range p.Regions[i].Candidates {
			for j := range p.Regions[i].Candidates[k].Nodes {
				p.Regions[i].Candidates[k].Nodes[j].Operator = hostile
				p.Regions[i].Candidates[k].Nodes[j].Span = hostile
			}
		}
	}
	for i := range p.Finalists {
		p.Finalists[i].Origin = hostile
	}
	p.GraphLevel.Networks[0].Name, p.GraphLevel.Why = hostile, hostile
	p.Candidates.Refusals = append(p.Candidates.Refusals, plan.Refusal{Backend: hostile, Composite: hostile,
		Reason: hostile})
	p.Environment.Device = hostile
	v, err := newView(Content{Plan: p, Command: hostile, Why: hostile, Notes: p.Notes})
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, page.Execute(&b, v))
	text := b.String()
	require.NotContains(t, text, "<script>alert")
	require.NotContains(t, text, "<img")
	require.NotContains(t, text, "<!--")
	require.Equal(t, 2, strings.Count(text, "</script>"), "the data and the layout's program, and nothing else")
	var data Data
	in := regexp.MustCompile(`(?s)id="data">(.*?)</script>`).FindStringSubmatch(text)
	require.NoError(t, json.Unmarshal([]byte(in[1]), &data))
	require.Equal(t, hostile, data.Nodes[0].Operator, "the programs get it as it is")
}

// chain is a network of so many operators in residual blocks of five; two of three blocks begin with a region of three
// on dnnl, all else is TVM's, and each operator has another candidate.
func chain(n int) *plan.Plan {
	p := &plan.Plan{Schema: plan.Schema,
		Module: plan.Module{Name: "chain", Hash: "5e1f",
			Functions: []plan.Function{{Name: "main", Nodes: n + 1, Operators: n}}},
		Backends: []plan.Backend{{Name: "tvm", Library: "TVM"}, {Name: "dnnl", Compiler: "dnnl", Library: "oneDNN"}},
		Estimate: plan.Estimate{Optimal: true}}
	operators := []string{"nn.conv2d", "add", "nn.relu", "nn.conv2d", "add"}
	for k := 0; k < n; {
		group, backend := 1, "tvm"
		if k%5 == 0 && k/5%3 > 0 && k+3 <= n {
			group, backend = 3, "dnnl"
		}
		r := plan.Region{ID: len(p.Regions), Function: "main", Backend: backend, Milliseconds: 0.25}
		c := plan.Candidate{Milliseconds: 0.25, Cost: cost.FromMilliseconds(0.25)}
		for range group {
			node := plan.Node{Index: k + 1, Operator: operators[k%5], Type: "Tensor[(1, 64, 56, 56), float32]",
				Span: fmt.Sprintf("layer%d/block%d", k/250, k/5), PostDominator: k + 2, Reads: []int{k}}
			if k%5 == 4 && k > 5 {
				node.Reads = []int{k - 4, k}
			}
			if k%5 == 4 && k+5 < n {
				node.PostDominator = k + 6
			}
			if k == n-1 {
				node.PostDominator = -1
			}
			c.Nodes = append(c.Nodes, node)
			p.Candidates.Rejected = append(p.Candidates.Rejected, plan.Rejected{Function: "main", Backend: "dnnl",
				Composite: "dnnl.any", Nodes: []int{k + 1}, Milliseconds: 0.5, Origin: cost.Measured, Low: 0.5, High: 0.75})
			k++
		}
		c.Nodes[group-1].Price = 0.25
		r.Candidates = []plan.Candidate{c}
		p.Regions = append(p.Regions, r)
		p.Estimate.Milliseconds += 0.25
	}
	p.Estimate.Bound = p.Estimate.Milliseconds
	return p
}

// A page of ten thousand operators has 6 MB beside the libraries.
func TestLargeNetwork(t *testing.T) {
	data, err := newData(chain(10_000))
	require.NoError(t, err)
	text, err := json.Marshal(data)
	require.NoError(t, err)
	require.Len(t, data.Nodes, 10_001)
	require.Less(t, len(text), 6_000_000)
}

func TestLargeNetworksTakeNoMoreThanLinearTime(t *testing.T) {
	growth.Linear(t, 500, func(size int) func() {
		p := chain(size)
		return func() {
			if _, err := newData(p); err != nil {
				t.Error(err)
			}
		}
	})
}

// An old plan does not say who reads what.
func TestPlansWithoutReads(t *testing.T) {
	p := chain(10)
	for i := range p.Regions {
		for j := range p.Regions[i].Candidates[0].Nodes {
			p.Regions[i].Candidates[0].Nodes[j].Reads = nil
		}
	}
	data, err := newData(p)
	require.NoError(t, err)
	require.True(t, data.Guessed)
	require.Equal(t, []int{0}, data.Nodes[1].Reads)
	require.Equal(t, []int{4, 8}, data.Nodes[9].Reads)
}

// With the libraries the page is whole and asks for nothing; without, it says what to do.
func TestWrite(t *testing.T) {
	var b bytes.Buffer
	err := Write(&b, Content{Plan: example(t)})
	if Available() != nil {
		require.ErrorContains(t, err, "make report")
		return
	}
	require.NoError(t, err)
	// No assertion on the text: a failure would print two megabytes.
	for text, there := range map[string]bool{"Content-Security-Policy": true, "default-src 'none'": true,
		"ZgotmplZ": false, `src="http`: false, `href="http`: false, "The Cytoscape Consortium": true,
		"Eclipse Public License": true} {
		require.Equal(t, there, strings.Contains(b.String(), text), text)
	}
}
