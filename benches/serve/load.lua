-- Posts the bodies of a file, one a line, in turn.
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
