// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/wcharczuk/go-chart/v2"
)

func somePlot() *dotPlot {
	return &dotPlot{Title: "somewhere", X: "operator", Y: "time to TVM's", Labels: []string{"1", "2", "3", "4"},
		Series: []dots{
			{"tvm", []float64{1, 1, 1, 1}}, {"library", []float64{0.4, 2.5, 0, 0.9}},
			{"nowhere", []float64{0, 0, 0, 0}},
		}}
}

func TestPicture(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, somePlot().render(&b, chart.SVG))
	// Every element is closed and the text can be found.
	decoder := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	for _, text := range []string{"somewhere", "library", "tvm", "0.5"} {
		assert.Contains(t, b.String(), text)
	}
	assert.NotContains(t, b.String(), "nowhere", "a series without values has no place in the legend")
	if path := os.Getenv("COLLAGE_TEST_PICTURE"); path != "" { // to look at it
		var png bytes.Buffer
		require.NoError(t, somePlot().render(&png, chart.PNG))
		require.NoError(t, os.WriteFile(path, png.Bytes(), 0o644))
	}
}

func TestPictureOfNothing(t *testing.T) {
	assert.ErrorContains(t, (&dotPlot{Labels: []string{"1"}}).render(io.Discard, chart.SVG), "nothing to draw")
}
