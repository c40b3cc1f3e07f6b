# SPDX-License-Identifier: Apache-2.0
#
# For scripts that fetch packages, to be sourced: says whether it was the network that failed.

# Does the output of pip, Go or apt-get in the file $1 say that what they fetch from was out of reach?
out_of_reach() {
  local pip='Failed to establish a new connection|(Connect|Read)Timeout(Error)?\(|ProxyError|NameResolutionError'
  pip+='|from versions: none'
  local go='dial tcp|proxyconnect tcp|module lookup disabled by GOPROXY=off|GOPROXY list is not the empty string'
  local apt='Temporary failure resolving|Could not resolve|Could not connect to|Unable to connect to'
  grep -Eq "$pip|$go|$apt" "$1"
}

# What to do about it, in a line.
reach_advice='no package index could be reached. Check the network; for a mirror set PIP_INDEX_URL (Python) or GOPROXY'
reach_advice+=' (Go), for a proxy HTTPS_PROXY. Then call this again: it goes on from here'
