// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzSize reads sizes: whole bytes from 1 up to 2^60, the same for a number without a unit.
func FuzzSize(f *testing.F) {
	for _, text := range []string{"", "1", "512M", "2g", "1.5 GiB", "3KB", "0", "-1", "1e9", "9999999T", "ɐ", "1ı",
		"1ſ", "..", "1B", "1IB"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseSize(text)
		if err != nil {
			require.Zero(t, n)
			require.ErrorContains(t, err, "is not a size")
			return
		}
		require.True(t, n >= 1 && n <= 1<<60 || n == 0 && text == "", "%q is %d", text, n)
		if plain, err := strconv.ParseInt(text, 10, 64); err == nil && plain < 1<<53 {
			require.Equal(t, plain, n)
		}
		again, err := parseSize(strconv.FormatInt(n, 10))
		require.True(t, n == 0 || err == nil && (n >= 1<<53 || again == n), "%q is %d", text, n)
	})
}

// FuzzAge reads ages.
func FuzzAge(f *testing.F) {
	for _, text := range []string{"12h", "30d", "8w", "0h", "1.5d", "-1d", "1e9w", "NaNh", "Infd", "h", "1m", "", "1é",
		"99999w"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		age, err := parseAge(text)
		if err != nil {
			require.Zero(t, age)
			require.ErrorContains(t, err, "12h, 30d or 8w")
			return
		}
		require.True(t, age >= 0 && age <= 101*366*24*time.Hour, "%q is %v", text, age)
		require.Contains(t, "hdw", text[len(text)-1:])
	})
}

// FuzzShapes reads --input-shape: what is read can be given again.
func FuzzShapes(f *testing.F) {
	for _, text := range []string{"data:1,3,224,224", "a:0:(1, 2)", "x:[]", "x:", ":1", "x:1,,2", "x:0", "x:-1",
		"x:1,\nx:2", "x:9223372036854775807",
		"x:99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		shapes, err := inputShape.parse(strings.Split(lines, "\n"))
		if err != nil {
			require.Nil(t, shapes)
			require.ErrorContains(t, err, "--input-shape")
			return
		}
		var again []string
		for name, shape := range shapes {
			var sizes []string
			for _, n := range shape {
				require.GreaterOrEqual(t, n, int64(0))
				sizes = append(sizes, strconv.FormatInt(n, 10))
			}
			again = append(again, name+":"+strings.Join(sizes, ","))
		}
		same, err := inputShape.parse(again)
		require.NoError(t, err)
		require.Equal(t, shapes, same)
	})
}

// Whatever a configuration holds, flags get values of their kinds, or the error says where it is wrong.
func FuzzConfiguration(f *testing.F) {
	f.Add("backends: [tvm, dnnl]\ncompile:\n  search-time: 5m\n")
	f.Add("threads: &a 4\nrepeat: *a\n")
	f.Add("? [a]\n: b\n")
	f.Add("pin: !!binary aGk=\n<<: {threads: 2}\n")
	f.Add("compile: {compile: {}}\n---\nthreads: 1\n")
	path := filepath.Join(f.TempDir(), "collage.yaml")
	f.Setenv(configurationEnv, path)
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		flags := newFlagSet(&compileCommand)
		compileCommand.New(flags)
		_, set, err := configure(&compileCommand, flags)
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Fatalf("%q: %v", text, err)
		}
		for _, one := range set {
			name, _, _ := strings.Cut(strings.TrimPrefix(one, "--"), " ")
			if typed(flags, name) {
				t.Fatalf("%q: --%s counts as typed", text, name)
			}
		}
	})
}
