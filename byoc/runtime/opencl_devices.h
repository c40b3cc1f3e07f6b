// SPDX-License-Identifier: Apache-2.0
//
// The OpenCL devices of this machine, as TVM's OpenCL runtime has them.
#ifndef COLLAGE_OPENCL_DEVICES_H_
#define COLLAGE_OPENCL_DEVICES_H_

#include <cstdint>
#include <string>

namespace collage {
namespace opencl {

// The device that regions run on, by its number among those that DescribeDevices tells, which is also TVM's
// number of it: the one that COLLAGE_OPENCL_DEVICE names, else the first. It is there when this returns;
// throws std::runtime_error that says what is missing and what to do. GPUs are taken where there are any, all
// other devices where not.
int ChosenDevice();

// What is known of the devices: a JSON array of
//
//     {"name": "...", "version": "OpenCL 3.0 PoCL", "driver": "3.1", "units": 2, "memory_bytes": 21300981760}
//
// Throws where there is no device.
std::string DescribeDevices();

// The size of a device's memory, in bytes.
uint64_t MemoryOf(int device);

// Regions of this process leave out the copies of their inputs and outputs from now on, and do not wait for
// the device: for who times their kernels. Their outputs are not what they should be then.
void LeaveOutCopies(bool on);
bool CopiesAreLeftOut();

}  // namespace opencl
}  // namespace collage

#endif  // COLLAGE_OPENCL_DEVICES_H_
