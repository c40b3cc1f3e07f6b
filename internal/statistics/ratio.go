// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Confidence is the coverage that the intervals of ratios and means are made for.
const Confidence = 0.95

// Ratio is a paired ratio: two things were run in turn, and the times of each turn are divided.
type Ratio struct {
	// Median is the median of the turns' ratios.
	Median float64 `json:"median"`
	// Low and High enclose the median of what the ratio is drawn from with the probability Coverage: order statistics,
	// by the sign test, which assumes nothing about the distribution. With few turns they are the least and the
	// greatest ratio, and Coverage is below 95 %.
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	Coverage float64 `json:"coverage"`
}

// PairedRatio divides the times of turns, above by below; both have as many. The zero Ratio of none.
func PairedRatio(above, below []float64) Ratio {
	sorted := slices.Sorted(slices.Values(Ratios(above, below)))
	if len(sorted) == 0 {
		return Ratio{}
	}
	rank, coverage := medianRank(len(sorted))
	return Ratio{Median: Median(sorted), Low: sorted[rank], High: sorted[len(sorted)-1-rank], Coverage: coverage}
}

// medianRank is the greatest r for which the order statistics r and n-1-r of n values (counted from 0) enclose the
// median with the wanted confidence, and with which probability they do; where there are too few values, 0 and what
// can be had.
func medianRank(n int) (rank int, coverage float64) {
	below := math.Pow(0.5, float64(n)) // P(at most `rank` values lie below the median)
	coverage = 1 - 2*below
	probability := below
	for r := 1; 2*r < n; r++ {
		probability *= float64(n-r+1) / float64(r)
		if below += probability; 1-2*below < Confidence {
			break
		}
		rank, coverage = r, 1-2*below
	}
	return rank, coverage
}

// GeometricMean is the geometric mean of several networks' ratios, with a bootstrap interval.
type GeometricMean struct {
	Mean float64 `json:"mean"`
	// Low and High enclose 95 % of the means of resampled turns.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Networks is how many networks are in it.
	Networks int `json:"networks"`
}

// resamples is how many times the turns are drawn anew.
const resamples = 2000

// GeometricMeanOf takes the ratios of the turns of each network: the geometric mean of the networks' medians. Drawn
// anew are the turns, network by network, always in the same way.
func GeometricMeanOf(networks [][]float64) GeometricMean {
	g := GeometricMean{Networks: len(networks)}
	if len(networks) == 0 {
		return g
	}
	mean := func(pick func(turns []float64) []float64) float64 {
		sum := 0.0
		for _, turns := range networks {
			sum += math.Log(Median(pick(turns)))
		}
		return math.Exp(sum / float64(len(networks)))
	}
	g.Mean = mean(func(turns []float64) []float64 { return turns })
	random := rand.New(rand.NewPCG(1, 2))
	means := make([]float64, resamples)
	for i := range means {
		means[i] = mean(func(turns []float64) []float64 {
			drawn := make([]float64, len(turns))
			for k := range drawn {
				drawn[k] = turns[random.IntN(len(turns))]
			}
			return drawn
		})
	}
	slices.Sort(means)
	tail := int((1 - Confidence) / 2 * resamples)
	g.Low, g.High = means[tail], means[resamples-1-tail]
	return g
}
