// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/settings"
)

// distant is a backend on a device of the tests, whose copies take a thousandth of a millisecond a byte there and twice
// that back.
type distant struct {
	byoc.Backend
	asked   []int64
	broken  error
	known   *byoc.CopyCosts
	version string
	memory  int64

	hardware string
}

func (*distant) Name() string             { return "distant" }
func (d *distant) Memory() int64          { return d.memory }
func (*distant) Device() string           { return "abacus" }
func (d *distant) Hardware() string       { return d.hardware }
func (d *distant) Know(c *byoc.CopyCosts) { d.known = c }
func (d *distant) Probe() byoc.Probe {
	return byoc.Probe{Usable: true, Library: "beads", Version: d.version}
}
func (d *distant) MeasureCopies(bytes int64) (to, from []float64, err error) {
	d.asked = append(d.asked, bytes)
	ms := float64(bytes) / 1000
	return []float64{ms, ms, ms}, []float64{2 * ms, 2 * ms, 2 * ms}, d.broken
}

// estimator gives costs that a caller has.
type estimator struct{}

func (estimator) Estimate(context.Context, []cost.Request) ([]cost.Cost, error) { return nil, nil }

func TestCopiesAreMeasuredOnceForADriver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	look := func(d *distant, config settings.Config) (*byoc.CopyCosts, error) {
		config.Store = path
		s := &Module{Config: &config, Backends: []byoc.Backend{&probed{}, d}}
		return d.known, s.measureCopies()
	}
	first := &distant{version: "1"}
	_, err := look(first, settings.Config{})
	require.NoError(t, err)
	require.Equal(t, copySizes, first.asked)
	require.Len(t, *first.known, len(copySizes))
	to, from := first.known.Of(1 << 16)
	require.InDelta(t, 65.536, to, 1e-9)
	require.InDelta(t, 131.072, from, 1e-9)

	second := &distant{version: "1", broken: errors.New("not asked")}
	_, err = look(second, settings.Config{})
	require.NoError(t, err)
	require.Empty(t, second.asked, "the store knows it")
	require.Equal(t, first.known, second.known)

	newer := &distant{version: "2", broken: errors.New("not asked")}
	_, err = look(newer, settings.Config{})
	require.NoError(t, err, "what multiplies there copies nothing")

	moved := &distant{version: "1", hardware: "the other abacus", broken: errors.New("a bead is stuck")}
	_, err = look(moved, settings.Config{})
	require.ErrorContains(t, err, "measuring what copies to the device abacus take: a bead is stuck",
		"what another device takes is measured anew")

	// Two backends of one device.
	one, two := &distant{hardware: "a third"}, &distant{hardware: "a third", broken: errors.New("not asked")}
	s := &Module{Config: &settings.Config{Store: filepath.Join(t.TempDir(), "costs.jsonl")},
		Backends: []byoc.Backend{one, &probed{}, two}}
	require.NoError(t, s.measureCopies())
	require.Len(t, *one.known, len(copySizes))
	require.Same(t, one.known, two.known)

	given := &distant{version: "1", known: first.known}
	_, err = look(given, settings.Config{Estimator: estimator{}})
	require.NoError(t, err)
	require.Nil(t, given.known, "where costs are given, they are all that counts")
}
