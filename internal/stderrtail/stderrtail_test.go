// SPDX-License-Identifier: Apache-2.0

package stderrtail

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTail(t *testing.T) {
	var tail Tail
	require.Empty(t, tail.String())
	require.Empty(t, tail.LastLine())
	for i := range 1000 {
		fmt.Fprintf(&tail, "line %d\n", i)
	}
	require.Equal(t, "line 999", tail.LastLine())
	require.LessOrEqual(t, len(tail.String()), size)
	require.True(t, strings.HasSuffix(tail.String(), "line 998\nline 999"))
	_, err := tail.Write([]byte("\xff\n\n"))
	require.NoError(t, err)
	require.Equal(t, "?", tail.LastLine())
}
