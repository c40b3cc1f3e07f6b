// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/plan"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func example(t *testing.T) *plan.Plan {
	t.Helper()
	p, err := plan.ReadFile("../../plan/testdata/plan.json")
	require.NoError(t, err)
	return p
}

func svg(t *testing.T, p *plan.Plan) string {
	t.Helper()
	drawn, err := New(p)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, drawn.WriteSVG(&b))
	for decoder := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return b.String()
		} else if err != nil {
			t.Fatalf("no XML: %v", err)
		}
	}
}

func TestSVG(t *testing.T) {
	const golden = "testdata/placement.svg"
	got := svg(t, example(t))
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// chain is a plan of so many operators, regions of seven on oneDNN and of three on TVM in turn.
func chain(operators int) *plan.Plan {
	p := &plan.Plan{Module: plan.Module{Name: "a <long> chain",
		Functions: []plan.Function{{Name: "main", Operators: operators}}},
		Backends: []plan.Backend{{Name: "tvm", Operators: 3}, {Name: "dnnl", Compiler: "dnnl", Operators: 7, Regions: 1}}}
	for at := 0; at < operators; {
		r := plan.Region{ID: len(p.Regions), Function: "main", Backend: "tvm"}
		count := 3
		if len(p.Regions)%2 == 0 {
			r.Backend, r.Symbol, count = "dnnl", fmt.Sprintf("f%d", at), 7
		}
		c := plan.Candidate{Milliseconds: 0.5}
		for ; count > 0 && at < operators; count, at = count-1, at+1 {
			c.Nodes = append(c.Nodes, plan.Node{Index: at, Operator: "nn.batch_matmul_with_a_long_name"})
		}
		r.Candidates = []plan.Candidate{c}
		p.Regions = append(p.Regions, r)
	}
	return p
}

var boxesInText = regexp.MustCompile(`<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"`)

// No operator is left out, no box lies on another one or outside, whatever the size.
func TestManyOperators(t *testing.T) {
	for _, operators := range []int{1, 30, 300, 3000} {
		drawn, err := New(chain(operators))
		require.NoError(t, err)
		text := svg(t, chain(operators))
		assert.Equal(t, operators+2, len(boxesInText.FindAllString(text, -1)), "with the legend's")
		assert.Equal(t, operators > mostNamed, strings.Contains(text, "Names are left out"))
		var last box
		for _, r := range drawn.regions[1:] {
			for _, b := range r.boxes {
				assert.True(t, b.y > last.y || b.y == last.y && b.x >= last.x+last.width, "%+v on %+v", b, last)
				assert.True(t, b.x+b.width <= width-margin && b.y+b.height <= drawn.Height)
				if b.name != "" {
					assert.LessOrEqual(t, textWidth(b.name, textSize), b.width)
				}
				last = b
			}
			if len(r.boxes) <= 7 { // which fit into a row
				assert.Equal(t, r.boxes[0].y, r.boxes[len(r.boxes)-1].y, "a candidate is broken")
			}
			for i, f := range r.frame {
				assert.Equal(t, i > 0, f.openLeft)
				assert.Equal(t, i < len(r.frame)-1, f.openRight)
			}
		}
	}
}

func TestPNG(t *testing.T) {
	drawn, err := New(example(t))
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, drawn.WritePNG(&b))
	picture, err := png.Decode(&b)
	require.NoError(t, err)
	assert.Equal(t, drawn.Height, picture.Bounds().Dy())
	assert.Equal(t, width, picture.Bounds().Dx())
	for _, r := range drawn.regions {
		for _, one := range r.boxes {
			seen := color.NRGBAModel.Convert(picture.At(one.x+3, one.y+3)).(color.NRGBA)
			assert.Equal(t, one.colour, fmt.Sprintf("%02x%02x%02x", seen.R, seen.G, seen.B), one.says)
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	_, err := New(&plan.Plan{Module: plan.Module{Functions: []plan.Function{{Name: "main"}}}})
	assert.ErrorContains(t, err, "nothing to draw")
}

// The colours are the page's.
func TestColours(t *testing.T) {
	style, err := os.ReadFile("../page/assets/style.css")
	require.NoError(t, err)
	light, _, _ := strings.Cut(string(style), "@media")
	for i, colour := range colours {
		assert.Contains(t, light, fmt.Sprintf("--b%d: #%s;", i, colour))
	}
}
