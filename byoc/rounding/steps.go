// SPDX-License-Identifier: Apache-2.0

package rounding

import (
	"fmt"
	"math"
	"sort"
)

// Steps are what numbers are rounded to where they become bytes: number = (byte - Zero) * Scale, bytes from 0 to 255.
type Steps struct {
	Scale float64 `json:"scale"`
	Zero  int     `json:"zero"`
}

// most is the greatest byte.
const most = 255

// UsualReach is how far random numbers reach mostly.
const UsualReach = 4.0

// Usual are steps for numbers that reach as far as random ones do mostly: of candidates that are measured alone, where
// how long something takes is asked, and nobody knows what its inputs will be.
var Usual = Reaching(-UsualReach, UsualReach)

// Reaching are the steps by which bytes reach from low to high, and 0 is one of them: padding is 0, and most of what a
// rectifier gives. Where both are 0 they reach to 1.
func Reaching(low, high float64) Steps {
	low, high = min(low, 0), max(high, 0)
	scale := float64(float32((high - low) / most))
	if scale < 0x1p-126 {
		return Steps{Scale: float64(float32(1.0 / most))}
	}
	return Steps{Scale: scale, Zero: int(math.Round(-low / scale))}
}

// Seen are numbers that were seen of a tensor.
type Seen struct {
	// Low and High are the least and the greatest of them.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Counts says how many of them, those that are 0 left out, lie in equal parts of what is between Low and High.
	Counts []int64 `json:"counts"`
	// Squares is the sum of their squares.
	Squares float64 `json:"squares"`
	// Gain is how much further off outputs are, in squares and relatively, than what is seen is where noise is added to
	// it; ChannelGain where each of its channels is scaled by a number that is off by that much, as weights that read
	// them may be: wherever the same weights are used, what they are off by is the same, and nothing of it averages out.
	Gain        float64 `json:"gain"`
	ChannelGain float64 `json:"channel_gain"`
	// Means are the means of its channels.
	Means []float32 `json:"means"`
}

// Learnt is what is kept of what was seen.
type Learnt struct {
	Steps
	// Noise is that of the steps; the gains and the means are Seen's.
	Noise       float64 `json:"noise"`
	Gain        float64 `json:"gain"`
	ChannelGain float64 `json:"channel_gain"`

	Means []float32 `json:"means,omitempty"`
}

// Learnt is what rounding what was seen to steps does.
func (s *Seen) Learnt(steps Steps) Learnt {
	return Learnt{Steps: steps, Noise: s.Noise(steps), Gain: s.Gain, ChannelGain: s.ChannelGain,
		Means: s.Means}
}

// Validate says what is wrong with what was kept; nil where nothing is.
func (l *Learnt) Validate() error {
	switch {
	case !(l.Scale > 0) || math.IsInf(l.Scale, 0) || l.Zero < 0 || l.Zero > most:
		return fmt.Errorf("a scale of %v whose zero is %d is none", l.Scale, l.Zero)
	case !(l.Noise >= 0 && l.Gain >= 0 && l.ChannelGain >= 0) || math.IsInf(l.Noise+l.Gain+l.ChannelGain, 0):
		return fmt.Errorf("noise of %v with the gains %v and %v is none", l.Noise, l.Gain, l.ChannelGain)
	}
	return nil
}

// Noise is by what share of themselves the numbers are off where they are rounded so, in squares.
func (s *Seen) Noise(steps Steps) float64 {
	if s.Squares == 0 {
		return 0
	}
	return s.off(steps) / s.Squares
}

// shorter is how many reaches are tried at each end: the whole, and so many that are shorter and shorter, down to a
// twentieth of it.
const shorter = 20

// Steps are those by which the numbers are off by the least in the mean of squares: what few of them reach may be cut
// off where that makes the steps finer for all others. Of several that are as good it is the longest reach.
func (s *Seen) Steps() Steps {
	best, least := Reaching(s.Low, s.High), math.Inf(1)
	sums := s.sums()
	for i := range shorter {
		for j := range shorter {
			steps := Reaching(s.Low*(1-float64(i)/shorter), s.High*(1-float64(j)/shorter))
			if off := s.offBy(steps, sums); off < least*(1-1e-9) {
				best, least = steps, off
			}
		}
	}
	return best
}

// moments are of numbers how many they are, their sum, and that of their squares.
type moments [3]float64

// around is the sum of the squares of how far they are from a place.
func (m moments) around(place float64) float64 {
	return max(0, m[2]-2*place*m[1]+place*place*m[0])
}

func (m moments) less(other moments) moments {
	return moments{m[0] - other[0], m[1] - other[1], m[2] - other[2]}
}

// sums are the moments of the numbers in the first parts: of none, of one, and so on up to all; a number is taken to be
// in the middle of its part.
func (s *Seen) sums() []moments {
	sums := make([]moments, len(s.Counts)+1)
	for i, count := range s.Counts {
		at, of := s.middle(i), float64(count)
		sums[i+1] = moments{sums[i][0] + of, sums[i][1] + of*at, sums[i][2] + of*at*at}
	}
	return sums
}

func (s *Seen) middle(part int) float64 {
	return s.Low + (float64(part)+0.5)*(s.High-s.Low)/float64(len(s.Counts))
}

// off is the sum of the squares of what the numbers are off by where they are rounded so: of those within reach a
// twelfth of a step's square, on the average.
func (s *Seen) off(steps Steps) float64 { return s.offBy(steps, s.sums()) }

// offBy is off, where sums are known.
func (s *Seen) offBy(steps Steps, sums []moments) float64 {
	low, high := -float64(steps.Zero)*steps.Scale, float64(most-steps.Zero)*steps.Scale
	below := sort.Search(len(s.Counts), func(i int) bool { return s.middle(i) >= low })
	within := below + sort.Search(len(s.Counts)-below, func(i int) bool { return s.middle(below+i) > high })
	all := sums[len(s.Counts)]
	inside := sums[within].less(sums[below])[0]
	return sums[below].around(low) + all.less(sums[within]).around(high) + inside*steps.Scale*steps.Scale/12
}
