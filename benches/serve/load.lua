-- Posts the bodies of a file (`BODIES`), one a line, in turn. With `RATE`, it sends so many requests a second.
local bodies = {}
for line in io.lines(os.getenv("BODIES")) do
    bodies[#bodies + 1] = line
end
local turn = 0
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
request = function()
    turn = turn % #bodies + 1
    return wrk.format(nil, nil, nil, bodies[turn])
end

local rate = tonumber(os.getenv("RATE"))
if rate then
    local ffi = require("ffi")
    ffi.cdef("struct moment { long seconds; long nanoseconds; }; int clock_gettime(int clock, struct moment *moment);")
    local moment = ffi.new("struct moment")
    local monotonic = 1
    local due = nil
    -- Milliseconds that a connection waits before its next request: until the next time of the schedule.
    delay = function()
        ffi.C.clock_gettime(monotonic, moment)
        local now = tonumber(moment.seconds) * 1000 + tonumber(moment.nanoseconds) / 1e6
        due = (due or now) + 1000 / rate
        return math.max(0, math.floor(due - now))
    end
end
